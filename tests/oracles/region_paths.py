"""The tree of a region table, laid out from the path of each leaf: slow and obvious."""

from tallytree import Hierarchy
from tallytree.domain.hierarchy import _ids


def from_paths(paths, levels, root):
    """Lay out leaf paths (distinct, no empty name) level by level; siblings keep the order of the paths."""
    if len({path[0] for path in paths}) > 1:
        paths, levels = [(root, *path) for path in paths], [root, *levels]
    # A node is the path to the named region, and how often it was carried down.
    layer = {(paths[0][:1], 0): 0}
    full, carried, parents, starts = [paths[0][:1]], [False], [-1], [0, 1]
    for level in range(1, len(levels)):
        rows = {index: [] for index in layer.values()}
        for path in paths:
            node = (path[: level + 1], max(0, level + 1 - len(path)))
            nodes = rows[layer[path[:level], max(0, level - len(path))]]
            if node not in nodes:
                nodes.append(node)
        layer = {}
        for parent, nodes in rows.items():
            for node in nodes:
                layer[node] = len(full)
                full.append(node[0])
                carried.append(node[1] > 0)
                parents.append(parent)
        starts.append(len(full))
    names = [path[-1] for path in full]
    return Hierarchy.from_layout(levels, names, _ids(full, carried, starts, levels), parents, carried)
