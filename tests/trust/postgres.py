"""A PostgreSQL server of the tests' own, in a temporary directory, that can be stopped and started."""

import getpass
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

USER = "ridgeline"


def program(name: str) -> str | None:
    """initdb or pg_ctl of any installed version."""
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)
    return str(installed[0]) if installed else shutil.which(name)


def missing() -> str:
    """Why no server can be started here, or ""."""
    if not (program("initdb") and program("pg_ctl")):
        return "PostgreSQL is not installed (apt-get install postgresql)"
    if os.geteuid() == 0 and subprocess.run(["id", "postgres"], capture_output=True).returncode:
        return "PostgreSQL does not run as root, and there is no user postgres"
    return ""


class Server:
    """One cluster, reached through a socket in its directory."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="pg-"))
        self.as_user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        if self.as_user:
            shutil.chown(self.directory, "postgres")
        self._run("initdb", "-D", str(self.data), "-A", "trust", "-U", USER, "--no-sync", "-E", "UTF8")
        self.start()

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://{USER}@/postgres?host={self.directory}"

    def start(self) -> None:
        options = f"-k {self.directory} -c listen_addresses='' -c fsync=off"
        self._run("pg_ctl", "-D", str(self.data), "-w", "-o", options, "-l", str(self.directory / "log"), "start")

    def stop(self) -> None:
        """As a power cut would: connections break."""
        self._run("pg_ctl", "-D", str(self.data), "-w", "-m", "immediate", "stop")

    def close(self) -> None:
        if (self.data / "postmaster.pid").exists() or not self.as_user:
            subprocess.run([*self.as_user, str(program("pg_ctl")), "-D", str(self.data), "-m", "immediate", "stop"])
        shutil.rmtree(self.directory, ignore_errors=True)

    def _run(self, name: str, *arguments: str) -> None:
        done = subprocess.run(
            [*self.as_user, str(program(name)), *arguments],
            cwd=self.directory,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
        )
        if done.returncode:
            raise RuntimeError(f"{name} as {getpass.getuser()}: {done.stderr}")
