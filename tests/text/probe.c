/* SPDX-License-Identifier: MIT */
/* Answers questions about schedules, one line each, for the oracle in Python: see oracle.py.
 *
 *     QUESTION = COMMAND TAB CRON TAB ZONE TAB GAP TAB REPEAT TAB EXCEPT TAB NAME TAB NUMBER...
 *
 * EXCEPT is a list with commas; an empty field is not given. Numbers are seconds. The answer is one line: `error FIELD: TEXT`, or numbers.
 *
 *     list FROM TO    the occurrences, FROM < t <= TO, each as INSTANT:OFFSET:MARK
 *     count FROM TO   how many there are
 *     last UNTIL      the last one
 *     every EVERY_US START|- CREATED FROM COUNT   of a period, in microseconds (the fields of cron are empty)
 *     place LOCAL     the instant of a civil time in the zone
 *     offset AT       the zone's offset
 *     version         of tzdata */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/calendar.h"

enum { FIELDS = 12, EXCEPTIONS = 64, SECOND_US = 1000000 };

struct question {
    char *field[FIELDS];
    fl_bytes except[EXCEPTIONS];
    struct rule_text text;
};

static fl_bytes bytes_of(const char *text)
{
    return *text ? (fl_bytes){text, strlen(text)} : (fl_bytes){0};
}

static int64_t number(const struct question *question, int index)
{
    return strtoll(question->field[index + 7], NULL, 10);
}

static void split(char *line, struct question *question)
{
    static char empty[] = "";
    char *rest = line;
    line[strcspn(line, "\n")] = 0;
    for (int i = 0; i < FIELDS; i++)
        question->field[i] = rest ? strsep(&rest, "\t") : empty;
    question->text = (struct rule_text){.ns = {"ns", 2},
                                        .name = bytes_of(question->field[6]),
                                        .cron = bytes_of(question->field[1]),
                                        .zone = bytes_of(question->field[2]),
                                        .gap = bytes_of(question->field[3]),
                                        .repeat = bytes_of(question->field[4]),
                                        .except = question->except};
    for (char *at = question->field[5]; at && *at && question->text.n_except < EXCEPTIONS;)
        question->except[question->text.n_except++] = bytes_of(strsep(&at, ","));
}

static void print(const struct occurrence *occurrence)
{
    static const char *const marks[] = {[RULE_PLAIN] = "-", [RULE_GAP] = "gap", [RULE_REPEAT] = "repeat"};
    printf("%" PRId64 ":%d:%s ", occurrence->at_us / SECOND_US, occurrence->offset_s, marks[occurrence->dst]);
}

static void list(const struct rule *rule, int64_t from_us, int64_t to_us)
{
    struct occurrence next;
    while (rule_next(rule, from_us, &next) && next.at_us <= to_us) {
        print(&next);
        from_us = next.at_us;
    }
}

static void list_periods(const struct rule *rule, int64_t from_us, int64_t count)
{
    struct occurrence next;
    for (; count > 0 && rule_next(rule, from_us, &next); count--) {
        printf("%" PRId64 " ", next.at_us);
        from_us = next.at_us;
    }
}

static void about_rule(const struct rule *rule, const struct question *question)
{
    struct occurrence last;
    const char *command = question->field[0];
    if (strcmp(command, "list") == 0)
        list(rule, number(question, 0) * SECOND_US, number(question, 1) * SECOND_US);
    else if (strcmp(command, "count") == 0)
        printf("%" PRIu64, rule_count(rule, number(question, 0) * SECOND_US, number(question, 1) * SECOND_US));
    else if (strcmp(command, "last") == 0 && rule_last(rule, number(question, 0) * SECOND_US, &last))
        print(&last);
    else if (strcmp(command, "every") == 0)
        list_periods(rule, number(question, 3), number(question, 4));
}

static bool about_zone(const struct zones *zones, const struct question *question)
{
    bool place = strcmp(question->field[0], "place") == 0;
    struct zone *zone;
    char error[ZONE_ERROR_TEXT];
    if (!place && strcmp(question->field[0], "offset") != 0)
        return false;
    if (zones_find(zones, question->text.zone, &zone, error) < 0) {
        printf("error zone: %s", error);
        return true;
    }
    if (place)
        printf("%" PRId64, zone_place(zone, number(question, 0)).at_s);
    else
        printf("%d", zone_offset(zone, number(question, 0)));
    zone_unref(zone);
    return true;
}

static void answer(const struct zones *zones, struct question *question)
{
    struct rule *rule;
    struct rule_error error;
    if (strcmp(question->field[0], "version") == 0) {
        printf("%s", zones_version(zones));
        return;
    }
    if (about_zone(zones, question))
        return;
    if (strcmp(question->field[0], "every") == 0) {
        question->text.has_every = true;
        question->text.every_us = (uint64_t)number(question, 0);
        question->text.has_start = strcmp(question->field[8], "-") != 0;
        question->text.start_us = number(question, 1);
        question->text.created_us = number(question, 2);
    }
    if (rule_new(&question->text, zones, &rule, &error) < 0) {
        printf("error %s: %s", error.field ? error.field : "memory", error.text);
        return;
    }
    about_rule(rule, question);
    rule_free(rule);
}

int main(int argc, char **argv)
{
    struct zones *zones;
    struct question question;
    char error[ZONE_ERROR_TEXT], *line = NULL;
    size_t room = 0;
    if (zones_load(argc > 1 ? argv[1] : NULL, NULL, &zones, error) < 0) {
        fprintf(stderr, "%s\n", error);
        return 1;
    }
    while (getline(&line, &room, stdin) > 0) {
        split(line, &question);
        answer(zones, &question);
        putchar('\n');
        fflush(stdout);
    }
    free(line);
    zones_free(zones);
    return 0;
}
