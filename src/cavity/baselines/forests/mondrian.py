"""Mondrian forests for regression (Lakshminarayanan, Roy & Teh 2016): online, and unsure away from the data.

A tree is a draw of a Mondrian process on the box of its labels: a node lives from the time of its parent's split to
that of its own, which is exponential with the box's length as its rate. Means of nodes are a random walk down the tree,

    μ_node ~ N(μ_parent, φ(τ_node) − φ(τ_parent)),   φ(t) = γ₁ σ(γ₂ t),   y ~ N(μ_leaf, noise),

whose posterior is found exactly, up and down the tree. A new x leaves the tree at a node with probability
1 − exp(−lifetime × distance from its box); it is then predicted from the parent's mean, with all variance the walk can
still gather. Far from all labels it leaves at the root, and the prediction is the prior.

γ₁ is twice the variance of the targets, so that a walk from time 0 to the end has their variance; γ₂ = d/(20 log₂ n)
and noise = variance/min(2000, 2n). These three, inputs scaled to their range, trees shared by all targets, and no split
of a node with fewer than `least` labels are choices of this implementation.
"""

from dataclasses import dataclass, field

import numpy as np

LEAST, TREES = 10, 64


@dataclass
class Node:
    """low, high: box of its labels. time: of its split, infinite in a leaf. rows: labels of a leaf."""

    low: np.ndarray
    high: np.ndarray
    time: float
    rows: np.ndarray
    parent: "Node | None" = None
    column: int = -1
    border: float = 0.0
    children: list["Node"] = field(default_factory=list)

    @property
    def start(self) -> float:
        """When its parent was split."""
        return 0.0 if self.parent is None else self.parent.time


class MondrianForest:
    """inputs: (n, d); targets: (n, k). `with_more` adds labels, `predict` gives means and variances."""

    def __init__(
        self, inputs: np.ndarray, targets: np.ndarray, seed: int = 0, trees: int = TREES, least: int = LEAST
    ) -> None:
        self.rng, self.least = np.random.default_rng(seed), least
        low, high = inputs.min(axis=0), inputs.max(axis=0)
        self.low, self.range = low, np.where(high > low, high - low, 1.0)
        self.centre, self.scale = targets.mean(axis=0), np.maximum(targets.std(axis=0), 1e-12)
        self.x, self.y = (inputs - low) / self.range, (targets - self.centre) / self.scale
        count = len(inputs)
        self.gamma1, self.gamma2 = 2.0, inputs.shape[1] / (20.0 * np.log2(max(count, 2)))
        self.noise = 1.0 / min(2000, 2 * count)
        self.roots = [self.block(np.arange(count), None) for _ in range(trees)]
        self.flat = [self.posterior(root) for root in self.roots]

    def block(self, rows: np.ndarray, parent: Node | None) -> Node:
        """A Mondrian tree on some labels, from the time of the parent's split on."""
        root = self.leaf(rows, parent)
        waiting = [root]
        while waiting:
            node = waiting.pop()
            length = node.high - node.low
            if len(node.rows) < self.least or length.sum() <= 0.0:
                continue
            node.time = node.start + self.rng.exponential(1.0 / length.sum())
            node.column = int(self.rng.choice(len(length), p=length / length.sum()))
            node.border = float(self.rng.uniform(node.low[node.column], node.high[node.column]))
            right = self.x[node.rows, node.column] > node.border
            node.children = [self.leaf(node.rows[side], node) for side in (~right, right)]
            node.rows = node.rows[:0]
            waiting += node.children
        return root

    def leaf(self, rows: np.ndarray, parent: Node | None) -> Node:
        """A node that is not split."""
        return Node(self.x[rows].min(axis=0), self.x[rows].max(axis=0), np.inf, rows, parent)

    def with_more(self, inputs: np.ndarray, targets: np.ndarray) -> None:
        """Labels that arrive later: each tree becomes one that might have been drawn with them from the start."""
        first = len(self.x)
        self.x = np.concatenate([self.x, (inputs - self.low) / self.range])
        self.y = np.concatenate([self.y, (targets - self.centre) / self.scale])
        for number in range(len(self.roots)):
            for row in range(first, len(self.x)):
                self.roots[number] = self.extended(self.roots[number], row)
        self.flat = [self.posterior(root) for root in self.roots]

    def extended(self, root: Node, row: int) -> Node:
        """The tree after one more label is added, grown as a Mondrian process would have."""
        node, x = root, self.x[row]
        while True:
            below, above = np.maximum(node.low - x, 0.0), np.maximum(x - node.high, 0.0)
            outside = (below + above).sum()
            time = node.start + self.rng.exponential(1.0 / outside) if outside > 0.0 else np.inf
            if node.children and time < node.time:
                return self.beside(root, node, row, time)
            node.low, node.high = np.minimum(node.low, x), np.maximum(node.high, x)
            if not node.children:
                # Leaves are small: what lies in one is drawn anew once it is large enough to be split.
                return replaced(root, node, self.block(np.append(node.rows, row), node.parent))
            node = node.children[int(x[node.column] > node.border)]

    def beside(self, root: Node, node: Node, row: int, time: float) -> Node:
        """A split above a node, between its box and the new label."""
        x = self.x[row]
        gap = np.maximum(node.low - x, 0.0) + np.maximum(x - node.high, 0.0)
        column = int(self.rng.choice(len(gap), p=gap / gap.sum()))
        right = x[column] > node.high[column]
        ends = (node.high[column], x[column]) if right else (x[column], node.low[column])
        above = Node(np.minimum(node.low, x), np.maximum(node.high, x), time, np.zeros(0, int), node.parent, column)
        above.border = float(self.rng.uniform(*ends))
        root = replaced(root, node, above)
        own = self.leaf(np.array([row]), above)
        node.parent, above.children = above, [node, own] if right else [own, node]
        return root

    def walk(self, time: np.ndarray) -> np.ndarray:
        """φ(t) = γ₁ σ(γ₂ t), the variance that the random walk of means has gathered by time t."""
        return self.gamma1 / (1.0 + np.exp(-self.gamma2 * time))

    def posterior(self, root: Node) -> dict[str, np.ndarray]:
        """Means and variances of all nodes, with what prediction needs of the tree, as arrays."""
        nodes = [root]
        for node in nodes:
            nodes += node.children
        number = {id(node): k for k, node in enumerate(nodes)}
        parent = np.array([-1 if node.parent is None else number[id(node.parent)] for node in nodes])
        time, start = np.array([n.time for n in nodes]), np.array([n.start for n in nodes])
        step = self.walk(time) - self.walk(start)
        # Up: what the labels below tell about a node's mean, as precision and precision × mean.
        precision = np.array([len(node.rows) / self.noise for node in nodes])
        weighted = np.stack([self.y[node.rows].sum(axis=0) / self.noise for node in nodes])
        passed, said = np.zeros(len(nodes)), np.zeros_like(weighted)
        for k in range(len(nodes) - 1, -1, -1):
            shrink = 1.0 / (1.0 + step[k] * precision[k])
            passed[k], said[k] = precision[k] * shrink, weighted[k] * shrink
            if k:
                precision[parent[k]] += passed[k]
                weighted[parent[k]] += said[k]
        # Down: with the parent's message, which must not hold this node's own message.
        mean, variance = np.zeros_like(weighted), np.zeros(len(nodes))
        for k in range(len(nodes)):
            centre, spread = np.zeros(self.y.shape[1]), 0.0
            if k:
                up = parent[k]
                others = 1.0 / variance[up] - passed[k]
                spread = 1.0 / others if others > 0.0 else np.inf
                centre = (mean[up] / variance[up] - said[k]) * spread if others > 0.0 else mean[up]
            total = 1.0 / (spread + step[k]) + precision[k]
            variance[k] = 1.0 / total
            mean[k] = variance[k] * (centre / (spread + step[k]) + weighted[k])
        return {
            "parent": parent, "mean": mean, "variance": variance, "life": time - start, "start": start,
            "low": np.stack([n.low for n in nodes]), "high": np.stack([n.high for n in nodes]),
            "column": np.array([n.column for n in nodes]), "border": np.array([n.border for n in nodes]),
            "children": np.array([[number[id(c)] for c in n.children] or [-1, -1] for n in nodes]),
        }  # fmt: skip

    def predict(self, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(means, variances), (n, targets) each, the labels' noise included; of the mixture of all trees."""
        x = (np.asarray(inputs, float) - self.low) / self.range
        firsts, seconds = zip(*(self.of_tree(tree, x) for tree in self.flat), strict=True)
        mean, second = np.mean(firsts, axis=0), np.mean(seconds, axis=0)
        return self.centre + self.scale * mean, self.scale**2 * np.maximum(second - mean**2, self.noise)

    def of_tree(self, tree: dict[str, np.ndarray], x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """First and second moments of the mixture over the places where a new x may leave the tree."""
        first, second = np.zeros((len(x), self.y.shape[1])), np.zeros((len(x), self.y.shape[1]))
        at, left, rows = np.zeros(len(x), int), np.ones(len(x)), np.arange(len(x))
        end = self.walk(np.array(np.inf))
        while len(rows):
            node = at[rows]
            gap = np.maximum(tree["low"][node] - x[rows], 0.0) + np.maximum(x[rows] - tree["high"][node], 0.0)
            outside = gap.sum(axis=1)
            leaf = tree["children"][node, 0] < 0
            with np.errstate(invalid="ignore"):
                leaves = np.where(outside > 0.0, -np.expm1(-tree["life"][node] * outside), 0.0)
            up = tree["parent"][node]
            known = up >= 0
            centre = np.where(known[:, None], tree["mean"][up], 0.0)
            spread = np.where(known, tree["variance"][up], 0.0) + end - self.walk(tree["start"][node]) + self.noise
            share = left[rows] * leaves
            first[rows] += share[:, None] * centre
            second[rows] += share[:, None] * (centre**2 + spread[:, None])
            left[rows] -= share
            stay = leaf * left[rows]
            first[rows] += stay[:, None] * tree["mean"][node]
            second[rows] += stay[:, None] * (tree["mean"][node] ** 2 + (tree["variance"][node] + self.noise)[:, None])
            right = x[rows, tree["column"][node]] > tree["border"][node]
            at[rows] = tree["children"][node, right.astype(int)]
            rows = rows[~leaf]
        return first, second


def replaced(root: Node, old: Node, new: Node) -> Node:
    """The tree with one node in the place of another, both of the same parent."""
    if old.parent is None:
        return new
    siblings = old.parent.children
    siblings[[child is old for child in siblings].index(True)] = new
    return root
