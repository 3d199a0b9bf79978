// SPDX-License-Identifier: MIT
// A page's address is the part after '#': #/timers/demo?prefix=co. It survives a reload and any base path of a proxy,
// because the server sees only /ui/. The query is the query of the API.

export function parse(hash) {
  const [path, query] = hash.replace(/^#\/?/, '').split(/\?(.*)/s);
  const parts = path.split('/').map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  return { page: parts[0] || 'now', parts: parts.slice(1).filter((part) => part !== ''), query: new URLSearchParams(query ?? '') };
}

export function link(page, parts = [], query) {
  const string = String(new URLSearchParams(query));
  return `#/${[page, ...parts.map(encodeURIComponent)].join('/')}${string && `?${string}`}`;
}

// Changes the filter of the page that is shown, without a new entry in the history for every keystroke.
export const setQuery = (route, query) => {
  route.query = query;
  history.replaceState(null, '', link(route.page, route.parts, query));
};

export const go = (hash) => {
  location.hash = hash;
};

// The parameters of `query` that the API knows; empty ones are left out.
export function pick(query, allowed) {
  const picked = new URLSearchParams();
  for (const key of allowed) {
    const value = query.get(key);
    if (value) picked.set(key, value);
  }
  return picked;
}

export function withParam(query, key, value) {
  const copy = new URLSearchParams(query);
  if (value === undefined || value === null || value === '') copy.delete(key);
  else copy.set(key, value);
  return copy;
}
