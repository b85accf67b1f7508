"""What other packages for reversible networks show in their README, written anew with this one."""

import torch
from torch import nn

import pareprop


def convolution(channels):
    """Batch norm keeps no running statistics: a branch is computed twice and must not change."""
    return nn.Sequential(
        nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels, track_running_stats=False), nn.ReLU()
    )


class AdditiveCoupling(nn.Module):
    """One reversible block on an image whose channels are divided."""

    def __init__(self, f, g):
        super().__init__()
        self.stack = pareprop.Stack([(f, g)], "reprop")

    def forward(self, x):
        return torch.cat(self.stack(*x.chunk(2, dim=1)), dim=1)

    def inverse(self, y):
        return torch.cat(self.stack.inverse(*y.chunk(2, dim=1)), dim=1)


def losses_of(model, data, target, loss_of, steps):
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    losses = []
    for _ in range(steps):
        loss = loss_of(model(data), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_an_additive_coupling_is_inverted_and_trained():
    coupling = AdditiveCoupling(convolution(5), convolution(5))
    x = torch.rand(2, 10, 8, 8)
    y = coupling(x)
    back = coupling.inverse(y)
    assert not torch.allclose(x, y, atol=0.1) and not back.requires_grad
    torch.testing.assert_close(back, x, rtol=0, atol=1e-5)

    model = nn.Sequential(AdditiveCoupling(convolution(5), convolution(5)), nn.Conv2d(10, 10, 1))
    losses = losses_of(model, x, x.flip(1), nn.functional.mse_loss, 40)
    assert losses[-1] < 0.5 * losses[0], losses
    coupling = model[0]
    torch.testing.assert_close(coupling.inverse(coupling(x)), x, rtol=0, atol=1e-5)


class Classifier(nn.Module):
    """Convolution, reversible blocks, convolution, pooling and a linear layer."""

    def __init__(self, channels=16, blocks=4, classes=3):
        super().__init__()
        self.first = nn.Conv2d(3, 2 * channels, 3, padding=1)
        self.stack = pareprop.Stack([(convolution(channels), convolution(channels)) for _ in range(blocks)])
        self.last = nn.Conv2d(2 * channels, 2 * channels, 3, padding=1)
        self.head = nn.Linear(2 * channels, classes)

    def forward(self, images):
        h = torch.cat(self.stack(*self.first(images).chunk(2, dim=1)), dim=1)
        return self.head(self.last(h).relu().mean((2, 3)))


def test_a_classifier_of_reversible_convolutions_learns():
    images, labels = torch.rand(12, 3, 8, 8), torch.arange(12) % 3
    model = Classifier()
    losses = losses_of(model, images, labels, nn.functional.cross_entropy, 40)
    assert losses[-1] < 0.5 * losses[0], losses
    assert (model(images).argmax(1) == labels).float().mean() > 0.8


def test_inverse_with_extra_arguments_and_lower_precision():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x, scale=None):
            return self.linear(x) * scale

    x1, x2, scale = torch.randn(2, 3, 8), torch.randn(2, 3, 8), torch.rand(8)
    for stack, tolerance in (
        (pareprop.Stack([(Scaled(), Scaled()) for _ in range(3)]), 1e-5),
        (pareprop.Stack([(Scaled(), Scaled()) for _ in range(3)], exact=True), 2e-6),  # the steps of the fixed point
        (pareprop.Stack([(Scaled(), Scaled()) for _ in range(3)]).double(), 1e-12),
    ):
        dtype = next(stack.parameters()).dtype
        y = stack(x1.to(dtype), x2.to(dtype), scale=scale.to(dtype))
        for back, x in zip(stack.inverse(*y, scale=scale.to(dtype)), (x1, x2)):
            assert back.dtype == dtype and (back - x).abs().max() < tolerance
    with torch.autocast("cpu", torch.bfloat16):
        y = stack.float()(x1, x2, scale=scale)
        for back, x in zip(stack.inverse(*y, scale=scale), (x1, x2)):
            assert (back - x).abs().max() < 1e-5
