# SPDX-License-Identifier: Apache-2.0
"""A state, a tree of containers, as named leaves and back.

Containers are dicts with text keys, lists, tuples, named tuples, None, and whatever JAX knows as a
pytree node when JAX is loaded. A leaf's name is the way to it, joined by '/': the keys of dicts and
the fields of named tuples as they are (characters that a name cannot hold as %XX), the places in
lists and tuples as numbers. How the containers were made is kept as JSON, so that a state comes back
without a model of it; nodes of classes need one (`like`), without it they come back as dicts.
"""
import json
import re
import sys

NODE, LEAF = 'node', 'leaf'
_UNFIT = re.compile(r'[/%\x00-\x1f\x7f]')


class Leaf:
    """Marks where a leaf stands in a structure."""


def _escape(part):
    """A level of a name: never empty, '.' or '..', without '/', '%' and control characters."""
    text = _UNFIT.sub(lambda found: f'%{ord(found[0]):02X}', part)
    if text in ('', '.', '..'):
        return '%' if not text else text.replace('.', '%2E')
    return text


def _registry_children(node):
    """[(key, child)] of a pytree node that JAX knows, else None."""
    jax = sys.modules.get('jax')
    if jax is None:
        return None
    # One level: everything below the node counts as a leaf.
    paths, _ = jax.tree_util.tree_flatten_with_path(node, is_leaf=lambda x: x is not node)
    if len(paths) == 1 and not paths[0][0]:
        return None
    children = []
    for path, child in paths:
        key = path[0]
        part = next((getattr(key, name) for name in ('key', 'name', 'idx')
                     if hasattr(key, name)), str(key))
        children.append((str(part), child))
    return children


def _children(node, where):
    """(kind, [(part, child)]) of a container, or None for a leaf."""
    if node is None:
        return 'none', []
    if type(node) is dict or (isinstance(node, dict) and type(node).__name__ == 'OrderedDict'):
        for key in node:
            if not isinstance(key, str):
                raise TypeError(f'the key {key!r} in {where} is {type(key).__name__}; '
                                'keys of a state are text')
        return 'dict', list(node.items())
    if isinstance(node, tuple) and hasattr(node, '_fields'):
        return 'named', list(zip(node._fields, node))
    if type(node) is list:
        return 'list', [(str(i), child) for i, child in enumerate(node)]
    if type(node) is tuple:
        return 'tuple', [(str(i), child) for i, child in enumerate(node)]
    children = _registry_children(node)
    return None if children is None else ('class', children)


def flatten(tree, is_leaf, what='the state'):
    """({name: leaf}, structure as JSON text). TypeError names what is neither container nor leaf."""
    leaves = {}

    def walk(node, name):
        where = f'{what} at "{name}"' if name else what
        if is_leaf(node):
            if not name:
                raise TypeError(f'{what} is one {type(node).__name__}; a state is a dict, list or '
                                'tuple of named parts')
            leaves[name] = node
            return {'k': LEAF}
        found = _children(node, where)
        if found is None:
            raise TypeError(f'{where} is a {type(node).__module__}.{type(node).__qualname__}, '
                            'which a checkpoint does not keep: arrays of NumPy, JAX and torch, '
                            'bool, int, float, str and bytes are kept, in dicts, lists and tuples')
        kind, children = found
        parts = [_escape(part) for part, _ in children]
        if len(set(parts)) != len(parts):
            raise ValueError(f'{where} has two parts of one name')
        made = {'k': kind}
        if kind in ('named', 'class'):
            made['type'] = f'{type(node).__module__}.{type(node).__qualname__}'
        if children:
            made['c'] = [[key, walk(child, f'{name}/{part}' if name else part)]
                         for (key, child), part in zip(children, parts)]
        return made

    structure = walk(tree, '')
    return leaves, json.dumps(structure, separators=(',', ':'))


def unflatten(structure, leaf_of):
    """The tree of a structure's JSON text; `leaf_of(name)` gives the leaves. Nodes of classes and
    named tuples become dicts by field."""
    def walk(made, name):
        kind = made['k']
        if kind == LEAF:
            return leaf_of(name)
        if kind == 'none':
            return None
        children = []
        for key, child in made.get('c', []):
            part = _escape(key)
            children.append((key, walk(child, f'{name}/{part}' if name else part)))
        if kind == 'list':
            return [child for _, child in children]
        if kind == 'tuple':
            return tuple(child for _, child in children)
        return dict(children)

    return walk(json.loads(structure), '')


def rebuild(like, is_leaf, leaf_of):
    """A tree of the same containers as `like`; `leaf_of(name, leaf of like)` gives the leaves."""
    def walk(node, name):
        if is_leaf(node):
            return leaf_of(name, node)
        found = _children(node, name)
        if found is None:
            raise TypeError(f'`like` has a {type(node).__qualname__} at "{name}"')
        kind, children = found
        made = []
        for key, child in children:
            part = _escape(key)
            made.append(walk(child, f'{name}/{part}' if name else part))
        if kind == 'none':
            return None
        if kind == 'dict':
            return type(node)(zip((key for key, _ in children), made))
        if kind == 'list':
            return made
        if kind == 'tuple':
            return tuple(made)
        if kind == 'named':
            return type(node)(*made)
        jax = sys.modules['jax']
        treedef = jax.tree_util.tree_structure(node, is_leaf=lambda x: x is not node)
        return jax.tree_util.tree_unflatten(treedef, made)

    return walk(like, '')
