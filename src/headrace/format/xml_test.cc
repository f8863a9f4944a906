#include "headrace/format/xml.h"

#include <gtest/gtest.h>

#include "headrace/format/xml_test_support.h"

namespace headrace {
namespace {

bool is_document(std::string_view xml) { return XmlDocument().parse(xml); }

TEST(Xml, ADocumentHasOneRootAndEndsWithIt) {
  EXPECT_TRUE(is_document("<?xml version='1.0'?>\n<!-- a --><a x='1'><b/>text</a>\n"));
  // S3 sends blanks while a long request goes on.
  EXPECT_TRUE(is_document("<?xml version=\"1.0\"?>\n   \n   <a/>"));
  EXPECT_TRUE(is_document("\xEF\xBB\xBF<a/>"));
  for (const char* xml : {"", " ", "text", "{}", "<a>", "<a><b></a>", "<a/><b/>", "<a/>text", "<a",
                          "<a></a", "<?xml version='1.0'?>", "<!-- a -->"}) {
    EXPECT_FALSE(is_document(xml)) << xml;
  }
}

TEST(Xml, OnlyCharactersAreReferredTo) {
  for (const char* good : kGoodReferences) {
    EXPECT_TRUE(is_document(cat("<a>", good, "</a>"))) << good;
  }
  for (const char* bad : kBadReferences) {
    EXPECT_FALSE(is_document(cat("<a>", bad, "</a>"))) << bad;
  }
  EXPECT_FALSE(is_document(std::string_view("<a>b\0</a>", 9)));
}

TEST(Xml, AControlCharacterOfANameIsReadFromItsReference) {
  XmlDocument document;
  ASSERT_TRUE(document.parse("<a><Key>a&#x1;b&#31;</Key></a>"));
  EXPECT_EQ(xml_text(document.root(), "Key"),
            "a\x01"
            "b\x1f");
}

TEST(Xml, ATextIsTakenAsItIsAndAWordWithoutTheWhiteSpaceAroundIt) {
  XmlDocument document;
  ASSERT_TRUE(
      document.parse("<s:a xmlns:s='x'><s:n> b\n</s:n><m> </m>"
                     "<k>one<!-- c -->two<![CDATA[&amp;]]></k></s:a>"));
  EXPECT_EQ(document.root_name(), "a");
  EXPECT_EQ(xml_text(document.root(), "n"), " b\n");
  EXPECT_EQ(xml_word(document.root(), "n"), "b");
  EXPECT_EQ(xml_text(document.root(), "m"), " ");
  EXPECT_EQ(xml_word(document.root(), "m"), "");
  EXPECT_EQ(xml_text(document.root(), "none"), "");
}

TEST(Xml, WhatIsWrittenIsReadBack) {
  for (const std::string_view text : {"a&b<c>d\"e'f", "\t\n\r\r\n", " a ", "ä日本😀", "]]>"}) {
    std::string xml = "<a><b>";
    append_xml(xml, text);
    XmlDocument document;
    ASSERT_TRUE(document.parse(xml + "</b></a>")) << text;
    EXPECT_EQ(xml_text(document.root(), "b"), text);
  }
}

}  // namespace
}  // namespace headrace
