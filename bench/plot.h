/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_BENCH_PLOT_H
#define FOLIOT_BENCH_PLOT_H

/* Charts as SVG: small multiples of bars or of lines, with the names and values written beside what they name instead
 * of in a legend. They follow the reader's choice of a light or dark page, and carry their content as text for those who
 * cannot see them. */

#include <stdbool.h>

struct plot_series {
    const char *name;
    unsigned tone; /* 0 and 1 are the colours of the house, 2 … 7 those of others */
};

struct plot_panel {
    const char *title;
    const double *values; /* [series][points]; NAN: nothing there */
};

struct plot {
    const char *title, *caption;
    const char *unit;
    const struct plot_series *series;
    const struct plot_panel *panels;
    unsigned n_series, n_panels;
    unsigned columns; /* panels side by side */
    bool linear;      /* each panel a scale that begins at zero, else one logarithmic scale for all */

    /* Lines only: what the points are, left to right. Bars have one point. */
    const double *x;
    const char *const *x_names;
    unsigned n_points;
};

/* Return 0, or -1 with errno set if the file cannot be written. */
int plot_bars(const char *path, const struct plot *plot);
int plot_lines(const char *path, const struct plot *plot);

/* Three digits that matter: "4890", "57.1", "0.12". */
const char *plot_number(double value, char buffer[24]);

#endif
