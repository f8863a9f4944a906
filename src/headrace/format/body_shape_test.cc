#include "headrace/format/body_shape.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

TEST(BodyShape, IsSeenByTheBeginning) {
  for (const char* body : {"", " \r\n\t", "\xEF\xBB\xBF\n"}) {
    EXPECT_EQ(shape_of(body), BodyShape::kEmpty) << body;
  }
  for (const char* body : {"<Error/>", "<?xml version=\"1.0\"?>\n<s3:DeleteResult>", "\n<a",
                           "<!-- <html> --><DeleteResult/>"}) {
    EXPECT_EQ(shape_of(body), BodyShape::kXml) << body;
  }
  for (const char* body : {"<html>", "\n<HTML lang=\"en\">", "<!DOCTYPE html>", "<h1>It works</h1>",
                           "<!doctype HTML PUBLIC><x>", "<?xml version=\"1.0\"?><html xmlns=\"\">",
                           "<!-- by a proxy --><html>"}) {
    EXPECT_EQ(shape_of(body), BodyShape::kHtml) << body;
  }
  for (const char* body : {"{}", " [1]", "{\"error\""}) {
    EXPECT_EQ(shape_of(body), BodyShape::kJson) << body;
  }
  for (const char* body : {"OK", "<", "<!", "<>", "&lt;", "\0"}) {
    EXPECT_NE(shape_of(body), BodyShape::kXml) << body;
    EXPECT_NE(shape_of(body), BodyShape::kHtml) << body;
  }
}

}  // namespace
}  // namespace headrace
