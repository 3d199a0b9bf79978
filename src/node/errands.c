/* SPDX-License-Identifier: MIT */
/* From worker to worker: errands, which come back, and tours, which visit all workers. */

#include "base/assert.h"
#include "node/internal.h"

static void arrive(fl_loop *loop, void *arg)
{
    struct errand *errand = arg;
    (void)loop;
    errand->go(errand);
}

static void come_home(fl_loop *loop, void *arg)
{
    struct errand *errand = arg;
    (void)loop;
    errand->back(errand);
}

static void post(struct errand *errand, struct worker *to, fl_loop_fn fn)
{
    errand->task = (fl_loop_task){.fn = fn, .arg = errand};
    fl_loop_post_task(to->loop, &errand->task);
}

void errand_send(struct errand *errand)
{
    fl__assert(errand->home && errand->there && errand->go && errand->back);
    if (errand->there == errand->home)
        errand->go(errand);
    else
        post(errand, errand->there, arrive);
}

void errand_return(struct errand *errand)
{
    fl__assert(errand->home && errand->there && errand->back);
    if (errand->there == errand->home)
        errand->back(errand);
    else
        post(errand, errand->home, come_home);
}

static void tour_visit(struct errand *errand)
{
    struct tour *tour = (struct tour *)errand;
    tour->fn(tour, errand->there);
    errand_return(errand);
}

static void tour_go_on(struct errand *errand)
{
    struct tour *tour = (struct tour *)errand;
    struct node *node = tour->home->node;
    fl__assert(tour->next <= node->worker_count && tour->home->under_way > 0);
    if (tour->next == node->worker_count) {
        tour->home->under_way--;
        tour->back(tour);
        return;
    }
    *errand = (struct errand){
        .home = tour->home, .there = &node->workers[tour->next++], .go = tour_visit, .back = tour_go_on};
    errand_send(errand);
}

void tour_begin(struct tour *tour, struct worker *home)
{
    fl__assert(tour->fn && tour->back);
    home->under_way++;
    tour->home = home;
    tour->next = 0;
    tour_go_on(&tour->errand);
}
