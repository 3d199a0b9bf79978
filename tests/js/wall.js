// SPDX-License-Identifier: MIT
// Runs with wall.c: WALL_BACK sets the wall clock back between 300 and 700 ms of this task.
const begin = performance.now();
const spin = until => { while (performance.now() - begin < until); };
spin(500);
const asked = performance.now();
setTimeout(() => {
    const passed = performance.now() - asked;
    print(passed < 900 ? `early: after ${passed} ms` : passed > 1500 ? `late: after ${passed} ms` : 'in time');
}, 900);
// The rest of the task does not look at performance.now(), which would tell when the timer was set.
for (let i = 0, steps = 0; i < 300; i++)
    for (const until = Date.now(); Date.now() === until;)
        steps++;
