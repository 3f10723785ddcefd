"""What the wheel must do where nothing else is installed: fit, predict, infer and show the demo."""

import csv
import subprocess
import sys
import tempfile
from pathlib import Path

COMMAND = str(Path(sys.executable).parent / "cavity")


def call(*arguments: str, code: int = 0) -> str:
    """Run the installed command; its output."""
    done = subprocess.run([COMMAND, *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == code, f"cavity {' '.join(arguments)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def main() -> None:
    """Raises where a command does not do what it should."""
    with tempfile.TemporaryDirectory() as folder:
        table, network, model = Path(folder, "rows.csv"), Path(folder, "chain.uai"), Path(folder, "model.npz")
        with table.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["a", "b", "label"])
            writer.writerows([k % 5, (3 * k) % 7, "yes" if k % 5 > 2 else "no"] for k in range(30))
        network.write_text("MARKOV\n2\n2 2\n1\n2 0 1\n4\n1 2 2 1\n", encoding="utf-8")
        call("fit", str(table), "--label", "label", "--out", str(model))
        call("predict", str(model), str(table), "--out", str(Path(folder, "predicted.csv")))
        assert "0.5" in call("infer", str(network))
        call("demo", "clutter", "--out", str(Path(folder, "demo.png")))
        assert "pip install" in call("reproduce", "list", code=2)


if __name__ == "__main__":
    main()
