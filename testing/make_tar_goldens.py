"""Writes the archives of src/headrace/format/testdata/tar, by all writers that are installed here.

usage: python testing/make_tar_goldens.py

Each archive is named after the tool that wrote it, its version, and the format. Beside it lies what
Python's `tarfile` finds in it, one line a member: type, size, offset of the first header, offset of
the data, CRC32 of the unpacked bytes, name, and name of the link, each of the last two
percent-encoded. GNU tar and bsdtar (Debian: libarchive-tools) are needed.
"""

import gzip
import io
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import urllib.parse
import zlib

TO = pathlib.Path(__file__).parent.parent / "src" / "headrace" / "format" / "testdata" / "tar"
TYPES = {
    tarfile.LNKTYPE: "hard",
    tarfile.SYMTYPE: "symbolic",
    tarfile.CHRTYPE: "character",
    tarfile.BLKTYPE: "block",
    tarfile.DIRTYPE: "directory",
    tarfile.FIFOTYPE: "pipe",
}


def content(size: int, seed: int) -> bytes:
    """Bytes that compress well and differ from place to place."""
    line = b"".join(b"%d:%d," % (seed, i) for i in range(64))
    return (line * (size // len(line) + 1))[:size]


def make_tree(root: pathlib.Path, *, odd_names: bool) -> None:
    """What all writers pack."""
    for size in (0, 1, 511, 512, 513, 10_240):
        (root / f"{size}.bin").write_bytes(content(size, size))
    (root / "folder" / "inner").mkdir(parents=True)
    (root / "folder" / "inner" / "a.cls").write_bytes(b"7")
    (root / ("n" * 100)).write_bytes(b"a name of 100 characters")
    deep = root / "/".join(["d" * 50] * 3)
    deep.mkdir(parents=True)
    (deep / "fits the prefix.txt").write_bytes(b"a name in two fields")
    os.symlink("10240.bin", root / "link")
    os.link(root / "513.bin", root / "same")
    os.mkfifo(root / "pipe")
    if odd_names:
        (root / ("long" * 60)).write_bytes(b"a name of 240 characters")
        far = root / "/".join(["e" * 60] * 5)
        far.mkdir(parents=True)
        (far / "far.txt").write_bytes(b"a name that fits nowhere")
        (root / "zo\u00eb \u03b1 \U0001f600.txt").write_bytes(b"a name beyond ASCII")
        os.symlink("t" * 180, root / "far link")


def make_sparse(path: pathlib.Path, parts: int, *, end: int) -> None:
    """A file of holes with some bytes between them."""
    with path.open("wb") as file:
        for part in range(parts):
            file.seek(1_000_000 * part + 4096 * 3)
            file.write(content(4096, part))
        file.truncate(end)


def described(archive: bytes) -> str:
    """What Python's tarfile finds."""
    lines = []
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as tar:
        for member in tar:
            kind = "file" if member.isreg() else TYPES[member.type]
            crc = 0
            if member.isreg():
                unpacked = tar.extractfile(member)
                assert unpacked is not None
                crc = zlib.crc32(unpacked.read())
            size = member.size if member.isreg() else 0
            names = [urllib.parse.quote(name) for name in (member.name, member.linkname)]
            offsets = f"{member.offset} {member.offset_data}"
            lines.append(f"{kind} {size} {offsets} {crc:08x} {names[0]} {names[1]}\n")
    return "".join(lines)


def keep(name: str, archive: bytes) -> None:
    """Writes an archive, compressed, and what is in it."""
    TO.mkdir(parents=True, exist_ok=True)
    (TO / f"{name}.tar.gz").write_bytes(gzip.compress(archive, mtime=0))
    (TO / f"{name}.txt").write_text(described(archive))


def version_of(command: str) -> str:
    """The first number with a dot that it tells."""
    told = subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"\d+\.\d+(\.\d+)?", told)
    assert found is not None
    return found.group()


def by_python(tree: pathlib.Path, form: int) -> bytes:
    """An archive of the tree in its directory."""
    to = io.BytesIO()
    with tarfile.open(fileobj=to, mode="w", format=form) as tar:
        for path in sorted(tree.rglob("*")):
            tar.add(path, path.relative_to(tree).as_posix(), recursive=False)
    return to.getvalue()


def by_command(command: list[str], tree: pathlib.Path) -> bytes:
    """What a command packs of the tree, in order of the names."""
    names = sorted(os.listdir(tree))
    return subprocess.run(
        [*command, "-C", str(tree), "--", *names], capture_output=True, check=True
    ).stdout


def python_values() -> bytes:
    """Sizes and names that need headers of their own, and global ones."""
    to = io.BytesIO()
    with tarfile.open(
        fileobj=to, mode="w", format=tarfile.PAX_FORMAT, pax_headers={"comment": "of all"}
    ) as tar:
        for i, name in enumerate(["a.txt", "b=\n.txt", "c" * 7000]):
            member = tarfile.TarInfo(name)
            member.size = 100 + i
            member.pax_headers = {"comment": "x" * 3000, "size": str(100 + i), "mtime": "1.5"}
            tar.addfile(member, io.BytesIO(content(100 + i, i)))
    return to.getvalue()


def main() -> None:
    """Writes them all."""
    gnu, bsd = f"gnu-tar-{version_of('tar')}", f"bsdtar-{version_of('bsdtar')}"
    python = "python-{}.{}.{}".format(*sys.version_info[:3])
    with tempfile.TemporaryDirectory() as folder:
        plain, odd, sparse = (pathlib.Path(folder) / name for name in ("plain", "odd", "sparse"))
        for tree in (plain, odd, sparse):
            tree.mkdir()
        make_tree(plain, odd_names=False)
        make_tree(odd, odd_names=True)
        make_sparse(sparse / "few", 3, end=2_500_000)
        make_sparse(sparse / "many", 40, end=40_000_000)
        make_sparse(sparse / "nothing but a hole", 0, end=1_000_000)
        (sparse / "after").write_bytes(b"what follows a sparse file")
        for form in ("v7", "ustar", "gnu", "pax"):
            tree = odd if form in ("gnu", "pax") else plain
            left_out = (
                ["--exclude=" + "d" * 50, "--exclude=pipe", "--exclude=" + "n" * 100]
                if form == "v7"
                else []
            )
            keep(f"{gnu}-{form}", by_command(["tar", "-c", f"--format={form}", *left_out], tree))
        keep(f"{gnu}-gnu-sparse", by_command(["tar", "-cS", "--format=gnu"], sparse))
        for version in ("0.0", "0.1", "1.0"):
            keep(
                f"{gnu}-pax-sparse-{version}",
                by_command(["tar", "-cS", "--format=pax", f"--sparse-version={version}"], sparse),
            )
        for form in ("ustar", "gnutar", "pax"):
            keep(
                f"{bsd}-{form}",
                by_command(
                    ["bsdtar", "-cf-", f"--format={form}"], plain if form == "ustar" else odd
                ),
            )
        keep(
            f"{bsd}-pax-sparse",
            by_command(["bsdtar", "-cf-", "--format=pax", "--read-sparse"], sparse),
        )
        keep(f"{python}-ustar", by_python(plain, tarfile.USTAR_FORMAT))
        keep(f"{python}-gnu", by_python(odd, tarfile.GNU_FORMAT))
        keep(f"{python}-pax", by_python(odd, tarfile.PAX_FORMAT))
        keep(f"{python}-pax-values", python_values())


if __name__ == "__main__":
    main()
