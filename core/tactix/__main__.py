"""``python -m tactix``: what the command ``tactix`` does."""

from importlib.metadata import entry_points

(command,) = {e.value: e for e in entry_points(group="console_scripts", name="tactix")}.values()
raise SystemExit(command.load()())
