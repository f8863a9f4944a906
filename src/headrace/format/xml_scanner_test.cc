#include "headrace/format/xml_scanner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headrace/base/result.h"
#include "headrace/format/xml.h"
#include "headrace/format/xml_test_support.h"

namespace headrace {
namespace {

using ::testing::ElementsAre;

bool is_document(std::string_view text) { return XmlScanner(text).is_whole(); }

// The names of all elements, each in front of what is inside of it.
std::string outline(XmlScanner& xml) {
  std::string names;
  while (xml.enter()) {
    names += cat(names.empty() ? "" : " ", xml.name());
    if (const std::string inside = outline(xml); !inside.empty()) names += cat("(", inside, ")");
  }
  return names;
}

// The text of the root; "(refused)" if it is not the only thing inside.
std::string text_of(std::string_view document) {
  XmlScanner xml(document);
  EXPECT_TRUE(xml.enter()) << document;
  XmlText text;
  const bool is_text = xml.leave_text(text);
  EXPECT_TRUE(xml.is_whole()) << document;
  std::string scratch;
  return is_text ? std::string(text.read(scratch)) : "(refused)";
}

TEST(XmlScanner, ADocumentHasOneRootAndEndsWithIt) {
  for (const char* good :
       {"<?xml version='1.0'?>\n<!-- a --><a x='1'><b/>text</a>\n", "<a/>", "\xEF\xBB\xBF<a/>",
        "<?xml version=\"1.0\"?>\n   \n   <a/>", "<a/><!-- > -->\n<?b c?>", "<a ></a\n>",
        "<a b = '>' c=\"'<\"/>", "<a><![CDATA[<b>]]></a>", "<a><?b c='>'?><!----></a>", "<a>></a>",
        "<s:a-1.\xC3\xA4 xmlns:s='x'></s:a-1.\xC3\xA4>"}) {
    EXPECT_TRUE(is_document(good)) << good;
    EXPECT_TRUE(XmlDocument().parse(good)) << good;
  }
}

TEST(XmlScanner, WhatIsNoDocumentIsRefused) {
  for (const char* bad : {"",
                          " ",
                          ">",
                          "text",
                          "{}",
                          "<a>",
                          "<a><b></a>",
                          "<a></b></a>",
                          "<a></ab>",
                          "<ab></a>",
                          "<a/><b/>",
                          "<a/>text",
                          "text<a/>",
                          "<a",
                          "<a></a",
                          "<a></a x>",
                          "<?xml version='1.0'?>",
                          "<!-- a -->",
                          "<!-- a --",
                          "<a><!-- --a></a>",
                          "<a><!-></a>",
                          "<a><![CDATA[x]></a>",
                          "<![CDATA[x]]><a/>",
                          "<a><?xml b?></a>",
                          "<a><? b?></a>",
                          "<a><?b></a>",
                          "< a/>",
                          "<1/>",
                          "<a/ >",
                          "<a/b>",
                          "<a b/>",
                          "<a b=c/>",
                          "<a b='c/>",
                          "<a b='c'd='e'/>",
                          "<a 1='b'/>",
                          "<a\"b/>",
                          "<></>",
                          "</a>",
                          "<!DOCTYPE a><a/>",
                          "<!DOCTYPE a [<!ENTITY e 'x'>]><a/>"}) {
    EXPECT_FALSE(is_document(bad)) << bad;
  }
  EXPECT_FALSE(is_document(std::string_view("<a>b\0</a>", 9)));
}

TEST(XmlScanner, OnlyCharactersAreReferredTo) {
  for (const char* good : kGoodReferences) {
    EXPECT_TRUE(is_document(cat("<a>", good, "</a>"))) << good;
  }
  for (const char* bad : kBadReferences) {
    for (const char* in : {"<a>|</a>", "<a b='|'/>", "<a><![CDATA[b]]>|</a>", "<a><!-- -->|</a>",
                           "<a>|<![CDATA[b]]></a>"}) {
      std::string document = in;
      EXPECT_FALSE(is_document(document.replace(document.find('|'), 1, bad))) << document;
    }
    for (const char* in :
         {"<a><!-- | --></a>", "<a><![CDATA[|]]></a>", "<a>&lt;<![CDATA[|]]></a>"}) {
      std::string document = in;
      EXPECT_TRUE(is_document(document.replace(document.find('|'), 1, bad))) << document;
    }
  }
}

TEST(XmlScanner, ElementsAreEnteredInTheirOrderWithoutTheirPrefixes) {
  XmlScanner xml(
      "<?xml version='1.0'?><s:a xmlns:s='x'>text<b><!-- <c/> --><s:d e='<f/>'/></b>"
      "<![CDATA[<g/>]]><x:y:h>&lt;i/&gt;</x:y:h></s:a>");
  EXPECT_EQ(outline(xml), "a(b(d) y:h)");
  EXPECT_TRUE(xml.is_whole());
}

TEST(XmlScanner, WhatIsLeftIsSkippedAndCheckedAllTheSame) {
  XmlScanner xml("<a><b><c><d/>text</c></b><e/><f>g</f></a>");
  std::vector<std::string> names;
  ASSERT_TRUE(xml.enter());
  while (xml.enter()) {
    names.emplace_back(xml.name());
    xml.leave();
  }
  EXPECT_THAT(names, ElementsAre("b", "e", "f"));
  EXPECT_TRUE(xml.is_whole());
  EXPECT_FALSE(xml.enter());
  EXPECT_FALSE(is_document("<a><b><c></d></b></a>"));
}

TEST(XmlScanner, ATextIsWhatIsMeantByIt) {
  EXPECT_EQ(text_of("<a/>"), "");
  EXPECT_EQ(text_of("<a b=''></a>"), "");
  EXPECT_EQ(text_of("<a> b </a>"), " b ");
  EXPECT_EQ(text_of("<a> </a>"), " ");
  EXPECT_EQ(text_of("<a>&quot;&#x1;&amp;lt;&#xE4;&#x1F600;</a>"),
            "\"\x01&lt;\xC3\xA4\xF0\x9F\x98\x80");
  EXPECT_EQ(text_of("<a>b\r\nc\rd&#13;\n\r</a>"), "b\nc\nd\r\n\n");
  EXPECT_EQ(text_of("<a><![CDATA[<&amp;>\r\n]]></a>"), "<&amp;>\n");
  EXPECT_EQ(text_of("<a>\n <![CDATA[ b ]]> \n</a>"), " b ");
  EXPECT_EQ(text_of("<a><!-- b -->c<?d?></a>"), "c");
}

TEST(XmlScanner, TextsInPiecesAreJoined) {
  EXPECT_EQ(text_of("<a>b<!-- -->c</a>"), "bc");
  EXPECT_EQ(text_of("<a>b<![CDATA[&amp;]]></a>"), "b&amp;");
  EXPECT_EQ(text_of("<a><![CDATA[b]]]]><![CDATA[>c]]></a>"), "b]]>c");
  EXPECT_EQ(text_of("<a><![CDATA[b]]>&lt;&#13;<?c?>d\r\n</a>"), "b<\rd\n");
  // As the other reader of XML joins them, white space included.
  for (const char* document :
       {"<a>b<!-- -->c</a>", "<a>b<!-- --> </a>", "<a> <!-- -->b</a>", "<a>b<!-- -->c<!-- --> </a>",
        "<a>b<!-- --> <!-- -->c</a>", "<a><![CDATA[b]]> </a>", "<a> <![CDATA[ ]]> </a>",
        "<a>b<![CDATA[c]]>d<?e?> </a>", "<a> <!-- --> </a>"}) {
    XmlDocument parsed;
    ASSERT_TRUE(parsed.parse(document)) << document;
    EXPECT_EQ(text_of(document), xml_text(parsed.root())) << document;
  }
  // The first is still there when the second one is read.
  XmlScanner xml("<a><b>1<!-- -->2</b><b>3<!-- -->4<!-- -->5</b></a>");
  XmlText first, second;
  ASSERT_TRUE(xml.enter() && xml.enter() && xml.leave_text(first));
  ASSERT_TRUE(xml.enter() && xml.leave_text(second));
  EXPECT_TRUE(xml.is_whole());
  std::string scratch;
  EXPECT_EQ(first.read(scratch), "12");
  EXPECT_EQ(second.read(scratch), "345");
}

TEST(XmlScanner, ATextBesideElementsIsRefused) {
  for (const char* document : {"<a>b<c/></a>", "<a><c>b</c></a>", "<a><c/></a>"}) {
    EXPECT_EQ(text_of(document), "(refused)") << document;
  }
}

TEST(XmlScanner, BehindAMistakeThereIsNothing) {
  XmlScanner xml("<a><b>c</b><d></e><f/></a>");
  ASSERT_TRUE(xml.enter() && xml.enter());
  XmlText text;
  ASSERT_TRUE(xml.leave_text(text));
  EXPECT_EQ(text.raw, "c");
  ASSERT_TRUE(xml.enter());
  EXPECT_EQ(xml.name(), "d");
  EXPECT_TRUE(xml.leave_text(text));
  EXPECT_EQ(text.raw, "");
  EXPECT_FALSE(xml.enter());
  EXPECT_FALSE(xml.is_whole());
}

TEST(XmlScanner, NestingHasALimitSoThatNoDocumentTakesMoreMemoryThanItsOwn) {
  const auto nested = [](size_t depth) {
    std::string document;
    for (size_t i = 0; i < depth; ++i) document += "<a>";
    for (size_t i = 0; i < depth; ++i) document += "</a>";
    return document;
  };
  EXPECT_TRUE(is_document(nested(XmlScanner::kMaxDepth)));
  EXPECT_FALSE(is_document(nested(XmlScanner::kMaxDepth).substr(3)));
  EXPECT_FALSE(is_document(nested(XmlScanner::kMaxDepth + 1)));
  EXPECT_FALSE(is_document(nested(1'000'000)));
}

}  // namespace
}  // namespace headrace
