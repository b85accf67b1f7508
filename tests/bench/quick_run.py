"""What the tests of bench/peers share: quick runs of it. Usage of each: TEST.py PATH_OF_peers_worker"""

import subprocess
import sys
from pathlib import Path

try:
    import safetensors  # noqa: F401
except ImportError:
    print("safetensors is not installed: skipped")
    sys.exit(77)

WORKER = Path(sys.argv[1]).resolve()
PEERS = Path(__file__).resolve().parents[2] / "bench" / "peers"
sys.path.insert(0, str(PEERS))


def quick_run(out, contestants, *more):
    command = [sys.executable, str(PEERS / "run.py"), "--quick", "--build", str(WORKER.parents[2]),
               "--out", str(out), "--precisions", "fp32", "--threads", "2",
               "--contestants", ",".join(contestants), *more]
    return subprocess.run(command, text=True, capture_output=True)
