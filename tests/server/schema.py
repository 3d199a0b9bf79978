# SPDX-License-Identifier: MIT
"""JSON Schema as far as src/api/openapi.json uses it: whether a value fits, and values that do or do not.

A keyword that is not known here is an error, so that nothing is checked less strictly than it is written.
"""

import re

ANNOTATIONS = {"description", "examples", "example", "default", "contentEncoding", "contentMediaType", "contentSchema"}
STRANGE = [None, True, 0, 17, -1, 1.5, 1e300, "", "x", "5 minutes", "\x01", [], [1], {}, {"strange": 1}]


def _is_type(value, name):
    if name == "integer":
        return isinstance(value, (int, float)) and not isinstance(value, bool) and value == int(value)
    if name == "number":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    kinds = {"string": str, "object": dict, "array": list, "boolean": bool, "null": type(None)}
    return isinstance(value, kinds[name])


def _same(a, b):
    return a == b and isinstance(a, bool) == isinstance(b, bool)


class Schemas:
    def __init__(self, document):
        self.document = document

    def resolve(self, node):
        """What a reference leads to; members beside it stay."""
        while isinstance(node, dict) and "$ref" in node:
            target = self.document
            for part in node["$ref"].removeprefix("#/").split("/"):
                target = target[part.replace("~1", "/").replace("~0", "~")]
            node = {**target, **{key: value for key, value in node.items() if key != "$ref"}}
        return node

    def errors(self, schema, value, closed=False, at="$"):
        """What is wrong with the value. `closed`: members that the schema does not name are wrong, too."""
        schema = self.resolve(schema)
        found = []
        for keyword, argument in schema.items():
            if keyword not in ANNOTATIONS:
                found += getattr(self, "_" + keyword)(argument, value, schema, closed, at)
        if closed and isinstance(value, dict) and "properties" in schema and "additionalProperties" not in schema:
            found += [f"{at}.{key} is not documented" for key in value if key not in schema["properties"]]
        return found

    def fits(self, schema, value, closed=False):
        return not self.errors(schema, value, closed)

    # One function a keyword.

    def _type(self, names, value, _schema, _closed, at):
        names = [names] if isinstance(names, str) else names
        return [] if any(_is_type(value, name) for name in names) else [f"{at} is not of type {names}"]

    def _enum(self, values, value, _schema, _closed, at):
        return [] if any(_same(value, one) for one in values) else [f"{at} is none of {values}"]

    def _const(self, constant, value, _schema, _closed, at):
        return [] if _same(value, constant) else [f"{at} is not {constant!r}"]

    def _pattern(self, pattern, value, _schema, _closed, at):
        good = not isinstance(value, str) or (re.search(pattern, value) and not value.endswith("\n"))
        return [] if good else [f"{at} is not like {pattern}"]

    def _minLength(self, least, value, _schema, _closed, at):
        return [f"{at} is too short"] if isinstance(value, str) and len(value) < least else []

    def _maxLength(self, most, value, _schema, _closed, at):
        return [f"{at} is too long"] if isinstance(value, str) and len(value) > most else []

    def _minimum(self, least, value, _schema, _closed, at):
        return [f"{at} is less than {least}"] if _is_type(value, "number") and value < least else []

    def _maximum(self, most, value, _schema, _closed, at):
        return [f"{at} is more than {most}"] if _is_type(value, "number") and value > most else []

    def _maxItems(self, most, value, _schema, _closed, at):
        return [f"{at} has too many"] if isinstance(value, list) and len(value) > most else []

    def _items(self, schema, value, _schema, closed, at):
        items = enumerate(value) if isinstance(value, list) else []
        return [error for i, item in items for error in self.errors(schema, item, closed, f"{at}[{i}]")]

    def _required(self, names, value, _schema, _closed, at):
        return [f"{at}.{name} is missing" for name in names if isinstance(value, dict) and name not in value]

    def _properties(self, properties, value, _schema, closed, at):
        if not isinstance(value, dict):
            return []
        known = [name for name in properties if name in value]
        return [error for name in known for error in self.errors(properties[name], value[name], closed, f"{at}.{name}")]

    def _additionalProperties(self, others, value, schema, closed, at):
        if not isinstance(value, dict) or others is True:
            return []
        names = [name for name in value if name not in schema.get("properties", {})]
        if others is False:
            return [f"{at}.{name} is not allowed" for name in names]
        return [error for name in names for error in self.errors(others, value[name], closed, f"{at}.{name}")]

    def _allOf(self, schemas, value, _schema, _closed, at):
        return [error for one in schemas for error in self.errors(one, value, False, at)]

    def _anyOf(self, schemas, value, _schema, closed, at):
        tried = [self.errors(one, value, closed, at) for one in schemas]
        return [] if any(not errors for errors in tried) else [error for errors in tried for error in errors]

    def _oneOf(self, schemas, value, _schema, closed, at):
        tried = [self.errors(one, value, closed, at) for one in schemas]
        good = sum(not errors for errors in tried)
        return [] if good == 1 else [f"{at} fits {good} of the schemas"] + [e for errors in tried for e in errors]

    def _not(self, schema, value, _schema, _closed, at):
        return [f"{at} has what excludes each other"] if self.fits(schema, value) else []

    # Values.

    def examples(self, schema):
        """Those that it gives, and those of its parts."""
        schema = self.resolve(schema)
        given = list(schema.get("examples", [])) + list(schema.get("enum", []))
        if "const" in schema:
            given.append(schema["const"])
        for part in schema.get("anyOf", []) + schema.get("oneOf", []):
            given += [] if "examples" in schema else self.examples(part)
        return given

    def _properties_of(self, schema):
        schema = self.resolve(schema)
        parts = schema.get("anyOf", []) + schema.get("oneOf", [])
        properties = dict(schema.get("properties", {}))
        for part in parts:
            properties.update(self._properties_of(part))
        return properties

    def variants(self, schema, base, depth=0):
        """Values near `base`, good and bad: a member changed, left out or added, at every depth."""
        yield from STRANGE
        if isinstance(base, list):
            for i, item in enumerate(base):
                items = self.resolve(schema).get("items", {})
                yield from (base[:i] + [other] + base[i + 1 :] for other in self.variants(items, item, depth + 1))
            yield base * 3
        if not isinstance(base, dict):
            return
        properties = self._properties_of(schema)
        yield {**base, "strange": 1}
        for name in base:
            yield {key: value for key, value in base.items() if key != name}
        for name, part in properties.items():
            for value in self.examples(part) + STRANGE:
                yield {**base, name: value}
            if name in base and depth < 3:
                yield from ({**base, name: value} for value in self.variants(part, base[name], depth + 1))
