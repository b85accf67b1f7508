"""The networks of this project in PyTorch alone, under the same parameter names: reversible ones and, but for
MViT, ordinary ones. Shapes follow from a state dict, and which of the two it is; what does not is in SETTINGS."""

from . import mvit, roberta, swin, vit

FAMILIES = {"vit": vit.Network, "swin": swin.Network, "mvit": mvit.Network, "roberta": roberta.Network}

# What shapes of weights do not tell.
SETTINGS = {
    "vit_tiny": {"heads": 3},
    "vit_small": {"heads": 6},
    "vit_base": {"heads": 12},
    "vit_large": {"heads": 16},
    "swin_tiny": {},
    "swin_small": {},
    "swin_base": {},
    "mvit_tiny": {},
    "mvit_small": {},
    "mvit_base": {},
    "roberta_base": {"heads": 12},
    "roberta_large": {"heads": 16},
}


def family(model):
    return model.split("_")[0]


def make(model, state, batch, attention, strategy):
    """`attention`: sdpa or matmul. `strategy`: stored, checkpoint or reversible."""
    if model not in SETTINGS:
        raise ValueError(f"no PyTorch network for '{model}': expected one of {', '.join(SETTINGS)}")
    network = FAMILIES[family(model)](state, batch, attention, **SETTINGS[model])
    network.load_state_dict(state)
    network.set_strategy(strategy)
    return network.train()
