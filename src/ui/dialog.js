// SPDX-License-Identifier: MIT
// Questions before an action, and short messages after it.

import { button, div, errorLine, h, newId } from './dom.js';

// Runs an action of a form; its error appears in `line`, and `mark` gets it.
export async function guard(line, action, mark = () => {}) {
  line.hidden = true;
  try {
    await action();
  } catch (problem) {
    line.textContent = problem.message;
    line.hidden = false;
    mark(problem);
  }
}

// Shows a modal dialog. `act` runs when the viewer confirms; while it runs, the dialog stays, and its error is shown there.
// Resolves with the result of `act`, also if the viewer closes the dialog meanwhile, or with undefined if it did not run.
export function ask({ title, body, action, danger = false, act = () => true }) {
  return new Promise((resolve) => {
    const id = newId();
    const error = errorLine();
    const submit = h('button', { type: 'submit', class: danger ? 'danger' : 'primary' }, action);
    let result;
    const form = h('form', {
      onsubmit: async (event) => {
        event.preventDefault();
        submit.disabled = true;
        await guard(error, async () => {
          result = await act();
          dialog.close();
        }, (problem) => dialog.open || toast(problem.message, 'bad'));
        submit.disabled = false;
        if (!dialog.isConnected) resolve(result);
      },
    }, h('h2', { id }, title), div('body', body), error,
    div('actions', button('Close', () => dialog.close(), 'quiet'), action && submit));
    const dialog = h('dialog', {
      'aria-labelledby': id,
      onclose: () => {
        dialog.remove();
        if (!submit.disabled) resolve(result);
      },
    }, form);
    document.body.append(dialog);
    dialog.showModal();
  });
}

export function toast(message, kind = '') {
  const el = div(`toast ${kind}`, message);
  const box = document.getElementById('toasts');
  while (box.childElementCount > 3) box.firstChild.remove();
  box.append(el);
  setTimeout(() => el.remove(), kind === 'bad' ? 9000 : 5000);
}

// Runs an action that needs no question; its error becomes a message.
export async function attempt(action, done) {
  try {
    const result = await action();
    if (done) toast(done);
    return result ?? true;
  } catch (problem) {
    toast(problem.message, 'bad');
    return undefined;
  }
}

export async function copy(content, what) {
  try {
    await navigator.clipboard.writeText(content);
    toast(`Copied ${what}.`);
  } catch {
    // Without TLS, a browser gives pages no clipboard: the viewer copies by hand.
    const area = h('textarea', { readonly: true, rows: 8, 'aria-label': what, class: 'mono' });
    area.value = content;
    ask({ title: 'Copy', body: area });
    area.select();
  }
}
