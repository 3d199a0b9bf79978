/* SPDX-License-Identifier: MIT */
/* The JSON reader: what it takes and what it refuses, and walking through what it took. */

#include "text/json.h"

#include <string.h>

#include "test.h"

static bool good(const char *text)
{
    struct json value;
    size_t at;
    const char *problem;
    return json_parse((fl_bytes){text, strlen(text)}, &value, &at, &problem) == 0;
}

static struct json parse(const char *text)
{
    struct json value = {0};
    size_t at;
    const char *problem;
    CHECK(json_parse((fl_bytes){text, strlen(text)}, &value, &at, &problem) == 0);
    return value;
}

static bool same(fl_bytes bytes, const char *text)
{
    return bytes.size == strlen(text) && memcmp(bytes.data, text, bytes.size) == 0;
}

TEST(takes_what_is_json)
{
    static const char *const texts[] = {
        "null",
        " true ",
        "false",
        "0",
        "-0",
        "12",
        "-1.5",
        "1e9",
        "1E+9",
        "0.5e-7",
        "\"\"",
        "\"a\\u00e4\\n\\ud83d\\ude00\"",
        "[]",
        "[ ]",
        "{}",
        "{ }",
        "[1]",
        "[1,2]",
        "{\"a\":1}",
        "{\"a\" : [ {\"b\":{}} , null ] , \"c\":\"d\"}",
        "\t\r\n[\n]\n",
        "123456789012345678901234567890",
        "\"\x7f\xc3\xa4\xf0\x9f\x98\x80\"",
        "[[[[]]],{\"\":[]}]",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        CHECK(good(texts[i]));
}

/* Whatever is special in a string, it is found wherever it is. */
TEST(each_byte_of_a_string_is_looked_at)
{
    for (int size = 1; size <= 40; size++)
        for (int at = 0; at < size; at++)
            for (int byte = 1; byte < 256; byte++) {
                char text[48] = "[\"";
                memset(text + 2, 'x', (size_t)size);
                text[2 + at] = (char)byte;
                strcpy(text + 2 + size, "\"]");
                CHECK(good(text) == (byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\'));
            }
}

TEST(refuses_what_is_not)
{
    static const char *const texts[] = {
        "",
        " ",
        "nul",
        "nulll",
        "True",
        "01",
        "-",
        "+1",
        ".5",
        "1.",
        "1e",
        "1e+",
        "\"",
        "\"\\\"",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\ud800\"",
        "\"\\udc00\"",
        "\"\\ud800\\u0041\"",
        "\"\n\"",
        "\"\x80\"",
        "\"\xc0\x80\"",
        "\"\xed\xa0\x80\"",
        "\"\xf5\x80\x80\x80\"",
        "\"\xe2\x82\"",
        "[",
        "]",
        "[1",
        "[1,",
        "[1,]",
        "[,1]",
        "[1 2]",
        "{",
        "}",
        "{\"a\"",
        "{\"a\":",
        "{\"a\":1",
        "{\"a\":1,",
        "{\"a\":1,}",
        "{a:1}",
        "{1:1}",
        "{\"a\" 1}",
        "[1}",
        "{\"a\":1]",
        "1 2",
        "[] []",
        "'a'",
        "// a\n1",
        "NaN",
        "Infinity",
        "\xef\xbb\xbf\x31",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        CHECK(!good(texts[i]));
}

TEST(is_as_deep_as_it_says)
{
    char text[2 * (JSON_DEPTH + 1) + 1];
    memset(text, '[', JSON_DEPTH);
    memset(text + JSON_DEPTH, ']', JSON_DEPTH);
    text[2 * JSON_DEPTH] = '\0';
    CHECK(good(text));
    memset(text, '[', JSON_DEPTH + 1);
    memset(text + JSON_DEPTH + 1, ']', JSON_DEPTH + 1);
    text[2 * (JSON_DEPTH + 1)] = '\0';
    CHECK(!good(text));
}

TEST(says_where_and_why)
{
    struct json value;
    size_t at;
    const char *problem;
    CHECK(json_parse((fl_bytes){"{\"a\": tru}", 10}, &value, &at, &problem) < 0);
    CHECK(at == 6);
    CHECK(strcmp(problem, "invalid JSON value") == 0);
}

TEST(walks_through_members_and_elements)
{
    struct json object = parse(" { \"a\" : [1, \"x,]\" , {}] , \"b\\u0020\": -7 } "), key, value, element;
    struct json_walk walk = json_walk(object);
    CHECK(json_member(&walk, &key, &value));
    CHECK(json_is(key, "a") && value.kind == JSON_ARRAY && same(value.text, "[1, \"x,]\" , {}]"));
    struct json_walk inner = json_walk(value);
    CHECK(json_element(&inner, &element));
    CHECK(same(element.text, "1") && element.kind == JSON_NUMBER);
    CHECK(json_element(&inner, &element));
    CHECK(json_is(element, "x,]"));
    CHECK(json_element(&inner, &element));
    CHECK(element.kind == JSON_OBJECT);
    struct json_walk empty = json_walk(element);
    CHECK(!json_member(&empty, &key, &value));
    CHECK(!json_element(&inner, &element));
    CHECK(json_member(&walk, &key, &value));
    char room[32];
    CHECK(same(json_string(key, room), "b "));
    int64_t number;
    CHECK(json_integer(value, &number) && number == -7);
    CHECK(!json_member(&walk, &key, &value));
}

TEST(unescapes)
{
    char room[64];
    CHECK(same(json_string(parse("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e4\\u20ac\\ud83d\\ude00.\""), room),
               "\"\\/\b\f\n\r\t\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80."));
    CHECK(json_string(parse("\"\\u0000\""), room).size == 1 && room[0] == '\0');
}

TEST(reads_integers_to_the_last)
{
    int64_t n;
    CHECK(json_integer(parse("9223372036854775807"), &n) && n == INT64_MAX);
    CHECK(!json_integer(parse("9223372036854775808"), &n));
    CHECK(!json_integer(parse("1.0"), &n));
    CHECK(!json_integer(parse("1e3"), &n));
    CHECK(json_double(parse("1.5e3")) == 1500);
}
