// SPDX-License-Identifier: MIT
// What all pages share: who the viewer is, what time the server has, and the namespace that was looked at last.

export const state = {
  who: { token: null, namespaces: null, rights: [] },
  version: '',
  test: false, // the server has a test clock
  skew: 0, // server's clock minus this computer's, in ms
  fixed: 0, // time of the test clock, in ms
  link: 'connecting', // connecting, live, lost or hidden
};

export const now = () => (state.test ? state.fixed : Date.now() + state.skew);

// The network delays the answer, so a small difference means nothing.
export function setClock(time) {
  const ms = Date.parse(time);
  if (state.test) state.fixed = ms;
  else state.skew = Math.abs(ms - Date.now()) > 2000 ? ms - Date.now() : 0;
}

export const allSpaces = () => state.who.namespaces === null;

// Without a namespace: the right in all namespaces.
export function can(right, namespace) {
  const { rights, namespaces } = state.who;
  return rights.includes(right) && (namespaces === null || (namespace !== undefined && namespaces.includes(namespace)));
}

const KEY = 'foliot-namespace';

export const lastSpace = () => sessionStorage.getItem(KEY) ?? '';
export const keepSpace = (namespace) => sessionStorage.setItem(KEY, namespace);
