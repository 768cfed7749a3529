#include "cli/output/markdown.h"

#include <gtest/gtest.h>

namespace dslaunch::markdown_test {
namespace {

std::string Render(std::string_view page, size_t width = 40) {
  return RenderMarkdown(page, width, [](std::string_view target) {
    return target.starts_with("#") ? "" : "see " + std::string(target);
  });
}

TEST(MarkdownTest, UnderlinesHeadings) {
  EXPECT_EQ(Render("# Title\n\n## Part of `it`\n\n### Small\ntext\n"),
            "Title\n=====\n\nPart of it\n----------\n\nSmall\n\ntext\n");
}

TEST(MarkdownTest, WrapsParagraphs) {
  EXPECT_EQ(Render("one two three\nfour five\n\nsix\n", 13), "one two three\nfour five\n\nsix\n");
  EXPECT_EQ(Render("a word_that_is_too_long b", 10), "a\nword_that_is_too_long\nb\n");
}

TEST(MarkdownTest, IndentsContinuationLinesOfListItems) {
  EXPECT_EQ(Render("- one two\n  three\n- four\n  - five\n\n10. six\n    seven eight\n", 13),
            "- one two\n  three\n- four\n  - five\n\n10. six seven\n    eight\n");
}

TEST(MarkdownTest, IndentsCodeBlocksWithoutWrapping) {
  EXPECT_EQ(Render("```sh\na long line of **code** with `ticks`\n\n  b\n```\n", 10),
            "    a long line of **code** with `ticks`\n\n      b\n");
  EXPECT_EQ(Render("- item\n  ```sh\n  code\n  ```\n"), "- item\n      code\n");
  EXPECT_EQ(Render("```\nnever closed"), "    never closed\n");
}

TEST(MarkdownTest, RendersCodeBoldAndLinksAsText) {
  EXPECT_EQ(Render("**all** of `--a\\b`, [b](c.md) and [`d`](#e) <https://x.y>", 80),
            "all of --a\\b, b [see c.md] and d https://x.y\n");
  EXPECT_EQ(Render("open ` and [x] and ** and [y](z", 80), "open ` and [x] and ** and [y](z\n");
}

TEST(MarkdownTest, DescribesPictures) {
  EXPECT_EQ(Render("![a job: `top`](top.svg) and text\n"), "(picture: a job: top) and text\n");
}

TEST(MarkdownTest, AlignsTables) {
  EXPECT_EQ(Render("| a | name |\n| --- | --- |\n| `x\\|y` | 1 |\n| longer | |\n"),
            "a       name\n------  ----\nx|y     1\nlonger\n");
}

TEST(MarkdownTest, OmitsEmptyTableHeading) {
  EXPECT_EQ(Render("| | |\n| --- | --- |\n| a | b |\n"), "a  b\n");
}

TEST(MarkdownTest, WrapsWideTablesWithinColumns) {
  EXPECT_EQ(Render("| a | b |\n| --- | --- |\n| xx | one two three four |\n", 15),
            "a   b\n--  -----------\nxx  one two\n    three four\n");
}

TEST(MarkdownTest, CountsCharactersNotBytes) {
  EXPECT_EQ(Render("| \xC3\xA4 | b |\n| --- | --- |\n| cc | d |\n"),
            "\xC3\xA4   b\n--  -\ncc  d\n");
}

TEST(MarkdownTest, OmitsComments) {
  EXPECT_EQ(Render("# A\n\n<!-- not shown -->\n\nb\n"), "A\n=\n\nb\n");
}

TEST(MarkdownTest, RendersEmptyPageAsOneEmptyLine) { EXPECT_EQ(Render(""), "\n"); }

}  // namespace
}  // namespace dslaunch::markdown_test
