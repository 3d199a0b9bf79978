/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_ENGINE_CODEC_H
#define FOLIOT_ENGINE_CODEC_H

/* A timer as the bytes of a row: for the engine, and for programs that look into stores. */

#include <foliot/engine.h>

/* At most fl__body_size() bytes; returns how many. */
size_t fl__body_size(const fl_durable *timer);
size_t fl__body_encode(const fl_durable *timer, int64_t at_us, unsigned char *out);
/* What the body does not say of `ret` stays as it is. */
int fl__body_decode(fl_bytes body, int64_t at_us, fl_durable *ret); /* FL_STORE_CORRUPT */
/* A body that cannot be read gives a timer without content. */
void fl__row_timer(const fl_row *row, fl_durable *ret);

#endif
