/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_TESTS_STORE_MODEL_H
#define FOLIOT_TESTS_STORE_MODEL_H

/* A shard as a list of rows that is searched from end to end: what a store must answer, in its simplest form.
 *
 * Answers are told as text, the model's and the store's by the same functions, so that comparing them is strcmp() and a
 * difference can be read. Bytes that rows point to are not copied: they must live as long as the model.
 */

#include <stdio.h>

#include <foliot/store.h>

enum { MODEL_ROWS = 4096, MODEL_KEEP = 64 };

struct model {
    fl_row rows[MODEL_ROWS]; /* by sequence number */
    size_t count;
    fl_dead_row dead[MODEL_ROWS]; /* by number of the id */
    size_t dead_count;
    fl_progress progress;
    uint64_t keep[MODEL_KEEP];
    uint64_t version;
    const char *owner; /* NULL: none */
    bool claimed;      /* its claim has not run out */
};

/* What the rows are now. */
const fl_row *model_by_name(const struct model *model, fl_bytes ns, fl_bytes name);
const fl_row *model_by_id(const struct model *model, fl_key id);
size_t model_windows(const struct model *model, uint64_t *out, size_t room); /* in order of time, then of size */

/* Carries a request out, which is valid, and tells the answer. */
void model_write(struct model *model, const fl_store_request *request, FILE *out);
void model_find(const struct model *model, const fl_store_request *request, FILE *out);
void model_list(const struct model *model, const fl_store_request *request, FILE *out); /* all pages */
void model_load(const struct model *model, const fl_store_request *request, FILE *out);
void model_refile(struct model *model, const fl_store_request *request, FILE *out); /* to the end */
void model_finish(struct model *model, const fl_store_request *request, FILE *out);
void model_record(struct model *model, const fl_progress *progress);
void model_list_dead(const struct model *model, const fl_store_request *request, FILE *out); /* all pages */

/* How answers are told. */
void tell_row(FILE *out, const fl_row *row);
void tell_dead(FILE *out, const fl_dead_row *dead);
void tell_want(FILE *out, const fl_row *row); /* NULL: not found */
void tell_load_end(FILE *out, bool more, fl_key next);
void tell_refiled(FILE *out, size_t moved, uint64_t parts);
void tell_progress(FILE *out, const fl_progress *progress);

#endif
