// SPDX-License-Identifier: MIT
// Sign-in: the token is exchanged for a cookie that scripts cannot read, and is not kept here.

import { post } from './api.js';
import { guard } from './dialog.js';
import { errorLine, field, h, h1 } from './dom.js';

export function show(view, done) {
  const token = h('input', { type: 'password', name: 'token', autocomplete: 'current-password', required: true });
  const error = errorLine();
  const submit = h('button', { type: 'submit', class: 'primary' }, 'Sign in');
  const form = h('form', {
    onsubmit: async (event) => {
      event.preventDefault();
      submit.disabled = true;
      await guard(error, async () => {
        await post('ui/session', { token: token.value.trim() });
        done();
      }, (problem) => {
        if (problem.status === 401) error.textContent = 'The server does not know this token.';
        token.select();
      });
      submit.disabled = false;
    },
  }, h1('Sign in to Foliot'), h('p', { class: 'muted' }, 'This server has tokens. Your rights here are those of the token you enter. The login lasts 12 hours.'),
  field('Token', token), error, submit);
  view.append(form);
  token.focus();
}
