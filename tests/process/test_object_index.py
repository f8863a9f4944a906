"""An `ObjectIndex` and other processes: they share its memory, whatever happens to either."""

from __future__ import annotations

import pytest

from tests.process.conftest import RunChild

# What every script begins with. An index of 2 MB; where it is mapped and how much of that is a
# process's own.
BEGINNING = """
    import gc, hashlib, io, multiprocessing, os, pickle, re, signal, subprocess, sys
    import headrace
    from headrace import ObjectIndex, ObjectInfo

    def make(count=60_000):
        def generation(i):
            return str(1_763_000_000_000_000 + i * 7_919 % 10**12)
        return ObjectIndex.from_objects(
            (ObjectInfo(f"train/{hashlib.md5(b'%d' % i).hexdigest()}.jpg", i * 37 % 99_991,
                        generation(i), i * 2654435761 % 2**32) for i in range(count)),
            root="gs://bucket/train",
        )

    def mappings():
        "Of each mapping of an index its private dirty, its shared, and all its resident KiB."
        out, inside = [], False
        with open("/proc/self/smaps") as smaps:
            lines = smaps.readlines()
        for line in lines:
            if re.match("[0-9a-f]+-[0-9a-f]+ ", line):
                inside = "memfd:headrace-index" in line
                if inside:
                    out.append({})
            elif inside and line.endswith("kB\\n"):
                key, value, _ = line.split()
                out[-1][key.rstrip(":")] = int(value)
        return [(m["Private_Dirty"], m["Shared_Clean"] + m["Shared_Dirty"], m["Rss"]) for m in out]

    def touch(index):
        "Looks at every byte: a page that only one process has touched counts as its own."
        assert index == index.select(range(len(index)))
        gc.collect()

    def read_all(index):
        return [index.name(i) for i in range(len(index))], index.fingerprint
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_child_shares_the_memory(run_child: RunChild, method: str) -> None:
    run_child(
        BEGINNING
        + """
    def work(index, expected, pipe):
        assert index == index.select(range(len(index)))
        assert read_all(index)[1] == expected
        gc.collect()
        pipe.send(mappings())

    if __name__ == "__main__":
        index = make()
        names, fingerprint = read_all(index)
        touch(index)
        assert len(mappings()) == 1
        context = multiprocessing.get_context(sys.argv[1])
        for _ in range(2):
            ours, theirs = context.Pipe()
            child = context.Process(target=work, args=(index, fingerprint, theirs))
            child.start()
            [(private_dirty, shared, resident)] = ours.recv()
            child.join(80)
            assert child.exitcode == 0
            assert resident > 1500, resident
            assert (private_dirty, shared) == (0, resident), (private_dirty, shared, resident)
        """,
        method,
    )


def test_what_is_sent_to_a_child_is_small(run_child: RunChild) -> None:
    run_child(
        BEGINNING
        + """
    if __name__ == "__main__":
        from multiprocessing import context, popen_spawn_posix, reduction
        index = make()
        carried = pickle.dumps(index)
        assert len(carried) > 1_000_000
        child = object.__new__(popen_spawn_posix.Popen)
        child._fds = []
        context.set_spawning_popen(child)
        try:
            # Also where one pickle is made inside another: a descriptor is not given twice.
            sent = [bytes(reduction.ForkingPickler.dumps(index)) for _ in range(2)]
            small = pickle.dumps(index[:100])
        finally:
            context.set_spawning_popen(None)
        assert len(sent[0]) < 300, len(sent[0])
        assert len(child._fds) == 1
        assert len(small) > 300  # too small to be worth a descriptor
        assert pickle.loads(small) == index[:100]
        assert pickle.loads(carried) == index
        assert len(pickle.dumps(index)) == len(carried)
        """,
    )


def test_a_child_outlives_its_parent(run_child: RunChild) -> None:
    out = run_child(
        BEGINNING
        + """
    def work(index, expected, pipe):
        pipe.send("started")
        try:
            pipe.recv()
        except EOFError:  # the parent is gone
            assert read_all(index)[1] == expected
            print("read", flush=True)

    if __name__ == "__main__":
        context = multiprocessing.get_context("spawn")
        index = make()
        ours, theirs = context.Pipe()
        child = context.Process(target=work, args=(index, index.fingerprint, theirs))
        child.start()
        theirs.close()
        assert ours.recv() == "started"
        os._exit(0)
        """,
    )
    assert out == "read\n"


def test_a_killed_process_leaves_nothing_behind(run_child: RunChild) -> None:
    run_child(
        BEGINNING
        + """
    def work(index, pipe):
        pipe.send(len(index))
        pipe.recv()

    def descriptors():
        return subprocess.run(["ls", "-l", f"/proc/{os.getpid()}/fd"], capture_output=True,
                              text=True, check=False).stdout

    if __name__ == "__main__":
        index = make()
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        child = context.Process(target=work, args=(index, theirs))
        child.start()
        assert ours.recv() == len(index)
        (shared,) = [line for line in descriptors().splitlines() if "headrace-index" in line]
        assert "-> /memfd:" in shared  # no folder has a name of it, that could stay
        os.kill(child.pid, signal.SIGKILL)
        child.join(80)
        assert child.exitcode == -signal.SIGKILL
        assert len(read_all(index)[0]) == 60_000
        assert "headrace-index" in descriptors()
        del index
        gc.collect()
        assert "headrace-index" not in descriptors()
        assert mappings() == []
        """,
    )


def test_a_program_that_is_executed_inherits_nothing(run_child: RunChild) -> None:
    run_child(
        BEGINNING
        + """
    if __name__ == "__main__":
        index = make()
        listing = subprocess.run(["ls", "-l", "/proc/self/fd"], capture_output=True, text=True,
                                 close_fds=False, check=True)
        assert "headrace-index" not in listing.stdout, listing.stdout
        """,
    )


def test_dataloader_workers_share_the_memory(run_child: RunChild) -> None:
    pytest.importorskip("torch")
    run_child(
        BEGINNING
        + """
    import torch.utils.data

    class Names(torch.utils.data.Dataset):
        def __init__(self, index):
            self.index = index
        def __len__(self):
            return len(self.index)
        def __getitem__(self, i):
            return self.index.name(i), mappings()

    if __name__ == "__main__":
        index = make()
        touch(index)
        loader = torch.utils.data.DataLoader(
            Names(index), batch_size=None, num_workers=2, sampler=[0, 59_999, 30_000],
            multiprocessing_context="spawn",
        )
        seen = list(loader)
        assert [name for name, _ in seen] == [index.name(i) for i in (0, 59_999, 30_000)]
        for _, [(private_dirty, shared, resident)] in seen:
            assert (private_dirty, shared) == (0, resident)
        """,
        stderr=None,
    )


def test_ctrl_c_ends_a_fingerprint_of_more_entries_than_anybody_waits_for(
    run_child: RunChild,
) -> None:
    """A damaged or malicious image of a kilobyte can say that it has 2^56 entries."""
    run_child(
        """
    import os, signal, struct, threading
    from headrace import _engine

    numbers = []
    def equal(value=0):
        numbers.extend((0, 0, value))
    def texts(size=0):
        numbers.extend((0, size))
        equal()
        equal(size)
        equal()
    def sums(kind=0):
        equal(kind)
        equal()
        numbers.extend((0, 0, 0))
    count = 1 << 56
    numbers += [count, 1, 1]
    texts()
    equal()
    texts(1)
    equal(101)
    equal()
    numbers.append(0)
    texts()
    sums()
    for _ in range(3):
        equal()
    for _ in range(3):
        numbers.append(1)
        texts()
        equal()
    numbers += [1, 1]
    for _ in range(5):
        equal()
    sums(2)  # entries with a checksum are taken in one by one
    numbers.append(0)
    texts()
    numbers.append(count * 100 + 1)
    data = struct.pack(f"<{len(numbers)}Q", *numbers) + b"n" + bytes(8)
    rest = struct.pack("<QQ", 32 + len(data), len(numbers)) + data
    image = b"HEADRIDX" + struct.pack("<II", 2, _engine.crc32c(rest)) + rest
    index = _engine.index_from_image(image)
    assert len(index) == count
    # Python runs the handler in this thread, wherever it is by then.
    thread = threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGINT))
    try:
        thread.start()
        index.fingerprint
    except KeyboardInterrupt:
        pass
    else:
        raise AssertionError("there was an end")
    thread.join()
        """
    )
