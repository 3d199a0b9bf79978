/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_TESTS_STORE_SQLITE_PLACE_H
#define FOLIOT_TESTS_STORE_SQLITE_PLACE_H

/* Folders for stores under test, in $TMPDIR; at exit they are removed. */

const char *new_folder(void);              /* one that is not there yet */
const char *folder_url(void);              /* sqlite:… of the last one */
const char *folder_file(const char *name); /* a path in the last one; valid until the next call */
void remove_folder(void);                  /* the last one, with everything in it */

#endif
