"""Processes that train together, one of which fails: the others end in time and say which it was."""

import os
import signal
import socket
import threading
import time

from attack import SMALL, Attack, cases, main, run
from run_folder import checkpoints, lines_of

TIMEOUT = 4
IN_TIME = TIMEOUT + 10
PATIENT = [*SMALL, "--mode", "reprop", "--eval-every", "10"]
COMMON = [*PATIENT, "--timeout", TIMEOUT]
ENDLESS = [*COMMON, "--steps", "1000000"]


class Listener:
    """Takes what connects to a port of this machine, and answers with `answer` or not at all."""

    def __init__(self, answer=b""):
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=50)
        self.port = self.socket.getsockname()[1]
        self.answer, self.taken = answer, []
        threading.Thread(target=self.take, daemon=True).start()

    def take(self):
        try:
            while True:
                connection, _ = self.socket.accept()
                self.taken.append(connection)
                if self.answer:
                    connection.sendall(self.answer)
        except OSError:
            pass

    def close(self):
        for each in [self.socket, *self.taken]:
            each.close()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def ports_of(pids):
    """(address, port) of what these processes listen to over TCP; addresses as in /proc/net/tcp."""
    inodes = set()
    for pid in pids:
        for entry in os.scandir(f"/proc/{pid}/fd"):
            try:
                inodes.add(os.readlink(entry.path))
            except OSError:
                pass
    found = []
    for table in ("tcp", "tcp6"):
        with open(f"/proc/net/{table}", encoding="ascii") as lines:
            for line in list(lines)[1:]:
                words = line.split()
                if words[3] == "0A" and f"socket:[{words[9]}]" in inodes:
                    address, port = words[1].split(":")
                    found.append((address, int(port, 16)))
    return found


class Ranks(Attack):
    def start_rank(self, rank, *arguments, port, world=2):
        return self.start(*arguments, environment={"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world),
                                                   "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})

    def start_pair(self, folder):
        """By --nproc, or by hand as torchrun would; the process of each rank, and whose ends are to be awaited."""
        port = free_port()
        ranks = [self.start_rank(rank, *ENDLESS, "--out", folder / "run", port=port) for rank in (0, 1)]
        ranks[0].wait_until(lambda: len(lines_of(folder / "run")) >= 2)
        return ranks, port

    @cases(2)
    def test_a_rank_is_lost(self, chance, folder):
        """Killed or stopped, at a random step: the other names it."""
        ranks, _ = self.start_pair(folder)
        time.sleep(chance.uniform(0, 0.3))
        lost = chance.randrange(2)
        number = chance.choice((signal.SIGKILL, signal.SIGSTOP))
        ranks[lost].send(number)
        with self.subTest(f"{number.name} to rank {lost}"):
            self.expect_refused(ranks[1 - lost].end(IN_TIME), f"rank {lost}")
            ranks[lost].kill()
            self.expect_whole(folder / "run", leftovers=lost == 0)

    @cases(2)
    def test_a_rank_of_the_launcher_is_lost(self, chance, folder):
        out = folder / "run"
        process = self.start(*ENDLESS, "--nproc", 2, "--out", out)
        process.wait_until(lambda: checkpoints(out))
        time.sleep(chance.uniform(0, 0.3))
        number = chance.choice((signal.SIGKILL, signal.SIGSTOP))
        os.kill(chance.choice(process.children()), number)
        # The launcher ends as the rank did that was lost first, or that gave up waiting for it.
        self.expect_refused(process.end(IN_TIME), "rank ", codes=(1, 128 + signal.SIGKILL))
        done = run(*COMMON, "--nproc", 2, "--out", out, "--resume", "auto", "--steps",
                   int(checkpoints(out)[-1].name[5:]) + 5)
        self.expect_done(done)
        self.expect_whole(out)

    @cases(2)
    def test_ranks_with_other_configurations(self, chance, folder):
        """Each says the field and both values; nobody trains."""
        field, here, there = chance.choice((
            ("batch", "16", "8"), ("seed", "0", "7"), ("learning-rate", "0.001", "0.002"), ("width", "16", "32"),
            ("depth", "2", "3"), ("steps", "9", "12"), ("accumulate", "1", "2"), ("mixup", "0", "0.5")))
        port, common = free_port(), [*COMMON, "--steps", "9", "--out", folder / "run"]
        ranks = [self.start_rank(rank, *common, f"--{field}", value, port=port)
                 for rank, value in enumerate((here, there))]
        for rank in ranks:
            done = rank.end(IN_TIME)
            self.expect_refused(done, f"--{field}", here, there)
        self.assertFalse(lines_of(folder / "run"))

    @cases(2)
    def test_somebody_else_listens(self, chance, folder):
        """In place of rank 0: one that says nothing, or nonsense."""
        listener = Listener(b"" if chance.random() < 0.5 else chance.randbytes(chance.choice((1, 8, 5000))))
        self.addCleanup(listener.close)
        rank = self.start_rank(1, *ENDLESS, "--out", folder / "run", port=listener.port)
        self.expect_refused(rank.end(IN_TIME), "127.0.0.1")
        self.assertFalse((folder / "run").exists())

    @cases(1)
    def test_a_port_in_use(self, chance, folder):
        listener = Listener()
        self.addCleanup(listener.close)
        rank = self.start_rank(0, *ENDLESS, "--out", folder / "run", port=listener.port)
        self.expect_refused(rank.end(IN_TIME), str(listener.port))
        self.assertFalse((folder / "run").exists())
        alone = self.start_rank(chance.randrange(2), *ENDLESS, "--out", folder / "run", port=free_port())
        self.expect_refused(alone.end(IN_TIME))

    @cases(2)
    def test_random_bytes_to_the_ports(self, chance, folder):
        """To whatever the ranks listen to, which is this machine only: the run goes on to the same end."""
        out = folder / "run"
        process = self.start(*PATIENT, "--nproc", 2, "--steps", 150, "--out", out)
        process.wait_until(lambda: len(lines_of(out)) >= 2)
        ports = ports_of([process.process.pid, *process.children()])
        self.assertTrue(ports)
        for address, _ in ports:
            self.assertIn(address, ("0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"),
                          "only loopback")
        for _ in range(8):
            try:
                with socket.create_connection(("127.0.0.1", chance.choice(ports)[1]), timeout=1) as connection:
                    connection.sendall(chance.randbytes(int(10 ** chance.uniform(0, 4.5))))
            except OSError:
                pass  # it closes the connection, or is done
        self.expect_done(process.end())
        self.expect_whole(out)

    @cases(2)
    def test_absurd_variables(self, chance, folder):
        """Of the launcher's environment, which somebody set by hand."""
        variables = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                     "MASTER_PORT": str(free_port())}
        name = chance.choice(("RANK", "WORLD_SIZE", "MASTER_PORT", "MASTER_ADDR"))
        value = chance.choice(("", "-1", "x", "99999999999999999999", "1e9", "nan", "\x1b[2J", "256.256.256.256"))
        done = run(*COMMON, "--steps", "2", "--out", folder / "run", environment={**variables, name: value},
                   limit=IN_TIME)
        with self.subTest(f"{name}={value!r}"):
            self.expect_refused(done, name if name != "MASTER_ADDR" else "MASTER_")


if __name__ == "__main__":
    main()
