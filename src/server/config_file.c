/* SPDX-License-Identifier: MIT */
/* The file, in the format ini: keys and sections by inih, which is handed the lines one by one.
 *
 * It silently cuts lines that are longer than its buffer, takes an indented line for a part of the value above it, and tells
 * of the first bad line only. So a line is looked at before it gets there: what is no line of such a file is complained
 * about, and what is left of the indentation is taken away. Counting lines here is also how a complaint knows its line,
 * since inih handles a line before it asks for the next. A value in the syntax of TOML is refused, with what to write
 * instead: taken as ini, its quotation marks would be a part of it. */

#include "base/hex.h"
#include "server/settings.h"

#include <errno.h>
#include <ini.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct source {
    struct reading *reading;
    FILE *file;
    char *buffer;
    size_t room;
    unsigned line;
    struct draft {
        struct token token;
        unsigned line;                 /* where it begins */
        bool hash, namespaces, rights; /* have been given */
    } * drafts;
    size_t draft_count;
};

/* A complaint about this line. */
__attribute__((format(printf, 2, 3))) static void complain_here(struct source *source, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    config_complain(source->reading, "%s:%u: %s", source->reading->config->file, source->line, text);
}

/* --- Lines ------------------------------------------------------------------------------------------------------- */

enum { SECTION_MAX = 49 }; /* inih cuts the name of a section there */

/* What is wrong with a line, or NULL. */
static const char *fault(const char *line, size_t size)
{
    if (strlen(line) < size)
        return "this line contains a NUL character";
    if (line[0] == '[' && !strchr(line, ']'))
        return "a ']' is missing";
    if (line[0] == '[' && strcspn(line, "]") - 1 >= SECTION_MAX)
        return "the name of this section is too long";
    if (line[0] != '\0' && !strchr("[#;\r\n", line[0]) && !strpbrk(line, "=:"))
        return "a line must be 'key = value', '[section]' or '# comment'";
    return NULL;
}

/* As fgets(). */
static char *next_line(char *out, int size, void *arg)
{
    struct source *source = arg;
    ssize_t length = getline(&source->buffer, &source->room, source->file);
    if (length < 0)
        return NULL;
    source->line++;
    const char *begin = source->buffer;
    if (source->line == 1 && strncmp(begin, "\xef\xbb\xbf", 3) == 0) /* how some editors mark UTF-8 */
        begin += 3;
    begin += strspn(begin, " \t");
    size_t left = (size_t)length - (size_t)(begin - source->buffer);
    const char *problem = fault(begin, left);
    if (problem)
        complain_here(source, "%s", problem);
    else if (left >= (size_t)size)
        complain_here(source, "this line is longer than %d bytes, the maximum", size - 2);
    if (problem || left >= (size_t)size)
        begin = "";
    snprintf(out, (size_t)size, "%s", begin);
    return out;
}

/* --- Tokens ------------------------------------------------------------------------------------------------------ */

static void free_namespaces(struct token *token)
{
    for (char **name = token->namespaces; name && *name; name++)
        free(*name);
    free(token->namespaces);
    token->namespaces = NULL;
}

static void free_token(struct token *token)
{
    free_namespaces(token);
    free(token->name);
}

void tokens_free(struct tokens *tokens)
{
    for (size_t i = 0; i < tokens->count; i++)
        free_token(&tokens->list[i]);
    free(tokens->list);
    *tokens = (struct tokens){0};
}

static void free_drafts(struct source *source)
{
    for (size_t i = 0; i < source->draft_count; i++)
        free_token(&source->drafts[i].token);
    free(source->drafts);
}

static void no_memory(struct source *source)
{
    config_complain(source->reading, "%s: out of memory", source->reading->config->file);
}

/* The token of this name, begun if there is none; NULL if there is no memory. */
static struct draft *draft_of(struct source *source, const char *name)
{
    for (size_t i = 0; i < source->draft_count; i++)
        if (strcmp(source->drafts[i].token.name, name) == 0)
            return &source->drafts[i];
    struct draft *longer = realloc(source->drafts, (source->draft_count + 1) * sizeof *longer);
    if (!longer)
        return NULL;
    source->drafts = longer;
    struct draft *draft = &longer[source->draft_count];
    *draft = (struct draft){.token.name = strdup(name), .line = source->line};
    if (!draft->token.name)
        return NULL;
    source->draft_count++;
    return draft;
}

static bool read_hash(const char *text, unsigned char hash[32])
{
    return fl__hex_bytes(text, hash, 32) && text[64] == '\0';
}

/* A hash is not shown, not even a wrong one: it might be the token itself. */
static void take_hash(struct source *source, struct draft *draft, const char *value)
{
    static const char of_nothing[] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    if (draft->hash)
        complain_here(source, "sha256 appears twice for this token; give it once");
    else if (strcasecmp(value, of_nothing) == 0)
        complain_here(source, "sha256: this is the hash of an empty text; a token must not be empty");
    else if (!read_hash(value, draft->token.hash))
        complain_here(source, "sha256: the value is not allowed; expected 64 hexadecimal digits, which printf %%s "
                              "\"$TOKEN\" | sha256sum prints");
    draft->hash = true;
}

static bool add_right(struct draft *draft, const char *name)
{
    static const struct {
        const char *name;
        unsigned rights;
    } known[] = {{"read", RIGHT_READ}, {"write", RIGHT_WRITE}, {"admin", RIGHT_READ | RIGHT_WRITE | RIGHT_ADMIN}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(known[i].name, name) == 0) {
            draft->token.rights |= known[i].rights;
            return true;
        }
    return false;
}

/* "*" stands in the list of namespaces until the token is finished. */
static bool add_namespace(struct draft *draft, const char *name)
{
    size_t count = 0;
    while (draft->token.namespaces && draft->token.namespaces[count])
        count++;
    char **longer = realloc(draft->token.namespaces, (count + 2) * sizeof *longer);
    if (!longer)
        return false;
    draft->token.namespaces = longer;
    longer[count] = strdup(name);
    longer[count + 1] = NULL;
    return longer[count] != NULL;
}

static void take_namespace(struct source *source, struct draft *draft, const char *name)
{
    if (strlen(name) > FL_STORE_NAME_MAX)
        complain_here(source, "namespaces: '%.40s...' is not allowed; expected a name of 1 to %d bytes", name,
                      FL_STORE_NAME_MAX);
    else if (!add_namespace(draft, name))
        no_memory(source);
}

/* Each part between commas and spaces. */
static void take_list(struct source *source, struct draft *draft, const char *key, const char *value)
{
    char *list = strdup(value), *rest = list;
    bool rights = strcmp(key, "rights") == 0, any = false;
    if (!list) {
        no_memory(source);
        return;
    }
    for (char *one; (one = strsep(&rest, ", \t")) != NULL;) {
        if (*one == '\0')
            continue;
        any = true;
        if (!rights)
            take_namespace(source, draft, one);
        else if (!add_right(draft, one))
            complain_here(source, "rights: '%s' is not allowed; expected read, write or admin", one);
    }
    if (!any)
        complain_here(source, "%s: '' is not allowed; expected %s", key,
                      rights ? "read, write or admin" : "names, or * for all");
    *(rights ? &draft->rights : &draft->namespaces) = true;
    free(list);
}

static bool is_token_name(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    return *name && name[strspn(name, letters)] == '\0';
}

/* A key of [token NAME]. */
static void take_token(struct source *source, const char *name, const char *key, const char *value)
{
    if (!is_token_name(name)) {
        complain_here(source, "[token %s]: '%s' is not allowed; expected letters, digits, '-', '_' and '.'", name,
                      name);
        return;
    }
    struct draft *draft = draft_of(source, name);
    if (!draft)
        no_memory(source);
    else if (strcmp(key, "sha256") == 0)
        take_hash(source, draft, value);
    else if (strcmp(key, "namespaces") == 0 || strcmp(key, "rights") == 0)
        take_list(source, draft, key, value);
    else
        complain_here(source, "[token %s]: unknown key '%s'; expected sha256, namespaces or rights", name, key);
}

static void check_draft(struct source *source, const struct draft *draft)
{
    static const char missing[] = "%s:%u: [token %s]: '%s' is missing; give %s";
    const char *file = source->reading->config->file, *name = draft->token.name;
    if (!draft->hash)
        config_complain(source->reading, missing, file, draft->line, name, "sha256",
                        "the SHA-256 of the token, which printf %s \"$TOKEN\" | sha256sum prints");
    if (!draft->namespaces)
        config_complain(source->reading, missing, file, draft->line, name, "namespaces", "names, or * for all");
    if (!draft->rights)
        config_complain(source->reading, missing, file, draft->line, name, "rights", "read, write or admin");
    for (const struct draft *other = source->drafts; other < draft; other++)
        if (other->hash && draft->hash && memcmp(other->token.hash, draft->token.hash, 32) == 0)
            config_complain(source->reading, "%s:%u: [token %s]: the same token as [token %s]", file, draft->line, name,
                            other->token.name);
}

/* Whether "*" is among the namespaces. */
static bool is_for_all(const struct token *token)
{
    for (char **name = token->namespaces; name && *name; name++)
        if (strcmp(*name, "*") == 0)
            return true;
    return false;
}

/* From drafts to tokens. */
static void finish_tokens(struct source *source)
{
    struct tokens *tokens = &source->reading->config->tokens;
    if (source->draft_count == 0)
        return;
    tokens->list = calloc(source->draft_count, sizeof *tokens->list);
    if (!tokens->list) {
        no_memory(source);
        return;
    }
    for (size_t i = 0; i < source->draft_count; i++)
        check_draft(source, &source->drafts[i]);
    for (size_t i = 0; i < source->draft_count; i++) {
        struct token *token = &source->drafts[i].token;
        if (is_for_all(token))
            free_namespaces(token);
        tokens->list[tokens->count++] = *token;
        *token = (struct token){.name = NULL};
    }
}

/* --- Keys -------------------------------------------------------------------------------------------------------- */

static const struct group *find_group(const char *section)
{
    for (size_t i = 0; i < GROUPS; i++)
        if (strcmp(setting_groups[i].section, section) == 0)
            return &setting_groups[i];
    return NULL;
}

static void take_key(struct source *source, const char *section, const char *key, const char *value)
{
    struct reading *reading = source->reading;
    const struct setting *setting = setting_find(key, strlen(key));
    const char *nearest = setting ? NULL : setting_nearest(key, strlen(key), false);
    if (!setting && nearest)
        complain_here(source, "unknown key '%s'; did you mean '%s'?", key, nearest);
    else if (!setting)
        complain_here(source, "unknown key '%s'; 'foliot serve --help' lists the keys", key);
    else if (*section && find_group(section) != &setting_groups[setting->group])
        complain_here(source, "'%s' belongs in [%s], not in [%s]", key, setting_groups[setting->group].section,
                      section);
    else {
        const struct config_origin *before = &reading->config->origins[setting - settings];
        if (before->from == CONFIG_FILE && !setting_is_list(setting))
            complain_here(source, "%s appears twice, first in line %u; give it once", key, before->line);
        config_take(reading, setting, value, (struct config_origin){CONFIG_FILE, source->line});
    }
}

/* A comment behind a value begins with a space and '#'; inih takes away those that begin with a space and ';'. */
static void cut_comment(char *value)
{
    char *comment = strstr(value, " #");
    while (comment && comment > value && (comment[-1] == ' ' || comment[-1] == '\t'))
        comment--;
    if (comment)
        *comment = '\0';
}

/* What to write instead of a value in the syntax of TOML; NULL: it is not one. */
static const char *instead_of(const char *value)
{
    if (*value == '"' || *value == '\'')
        return "write the value without quotation marks";
    if (*value == '[' && (strpbrk(value, "\"'") || strcmp(value, "[]") == 0)) /* [::1]:7411 is an address */
        return "write the list without brackets and quotation marks, as in a, b";
    return NULL;
}

static void take_ini(struct source *source, const char *section, const char *key, const char *value)
{
    const char *instead = instead_of(value);
    if (instead) /* without the value: it may be a secret */
        complain_here(source, "%s: this file is ini, not TOML; %s", key, instead);
    else if (strncmp(section, "token.", 6) == 0)
        complain_here(source, "[%s]: this file is ini, not TOML; write [token %s]", section, section + 6);
    else if (strncmp(section, "token ", 6) == 0)
        take_token(source, section + 6 + strspn(section + 6, " \t"), key, value);
    else if (*section && !find_group(section))
        complain_here(source, "unknown section [%s]; expected [server], [engine], [webhooks], [limits] or [token NAME]",
                      section);
    else
        take_key(source, section, key, value);
}

static int take_pair(void *arg, const char *section, const char *key, const char *value)
{
    char *copy = strdup(value);
    if (!copy) {
        no_memory(arg);
        return 1;
    }
    cut_comment(copy);
    take_ini(arg, section, key, copy);
    free(copy);
    return 1;
}

void config_read_file(struct reading *reading)
{
    const char *path = reading->config->file;
    struct source source = {.reading = reading, .file = fopen(path, "re")};
    if (!source.file) {
        config_complain(reading, "cannot read %s: %s", path, strerror(errno));
        reading->tokens_unknown = true;
        return;
    }
    int result = ini_parse_stream(next_line, &source, take_pair, &source);
    reading->tokens_unknown = result != 0 || ferror(source.file);
    if (ferror(source.file))
        config_complain(reading, "cannot read %s: %s", path, strerror(errno));
    else if (result > 0)
        config_complain(reading, "%s:%d: this line cannot be parsed", path, result);
    else if (result < 0)
        no_memory(&source);
    finish_tokens(&source);
    free_drafts(&source);
    free(source.buffer);
    fclose(source.file);
}
