"""Write true_skill.json: ratings by the package `trueskill` (PyPI), its inner loop run to 1e-12.

pip install trueskill
python tests/tables/make_true_skill_table.py
"""

import json
from pathlib import Path

import trueskill

#: (skills as (mean, deviation), teams of players best first, ranks, probability of a draw, beta, tau)
MATCHES = [
    ([(25, 25 / 3), (25, 25 / 3)], [[0], [1]], [0, 1], 0.1, 25 / 6, 25 / 300),
    ([(25, 25 / 3), (30, 2)], [[0], [1]], [0, 0], 0.1, 25 / 6, 25 / 300),
    ([(25, 8), (28, 6), (20, 7), (25, 8), (31, 3)], [[0, 1], [2, 3], [4]], [0, 1, 1], 0.2, 25 / 6, 25 / 300),
    ([(20, 5), (35, 1), (15, 8), (25, 3)], [[2], [0], [3], [1]], [0, 1, 2, 3], 0.05, 4.0, 0.5),
    ([(10, 2), (50, 2), (25, 8), (24, 7), (23, 6), (26, 1)], [[0, 2, 3], [1], [4, 5]], [0, 0, 1], 0.3, 3.0, 0.1),
]


def rated(match: list) -> list[list[float]]:
    """Means and deviations of all players after a match."""
    skills, teams, ranks, draw, beta, tau = match
    world = trueskill.TrueSkill(beta=beta, tau=tau, draw_probability=draw)
    groups = [[world.create_rating(*skills[player]) for player in team] for team in teams]
    found = world.rate(groups, ranks=ranks, min_delta=1e-12)
    after = {player: own for team, row in zip(teams, found, strict=True) for player, own in zip(team, row, strict=True)}
    return [[after[k].mu, after[k].sigma] for k in range(len(skills))]


def main() -> None:
    names = ("skills", "teams", "ranks", "draw", "beta", "tau")
    rows = [dict(zip(names, match, strict=True)) | {"after": rated(list(match))} for match in MATCHES]
    text = json.dumps({"package": f"trueskill {trueskill.__version__}", "matches": rows}, indent=1)
    Path(__file__).with_name("true_skill.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
