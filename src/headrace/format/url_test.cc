#include "headrace/format/url.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headrace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::string_view_literals;

std::string message_of(std::string_view text) {
  const Result<Url> url = parse_url(text);
  if (url) return "no error";
  EXPECT_EQ(url.error().code(), Code::kInvalidArgument);
  return url.error().message();
}

TEST(Url, HasASchemeABucketAndAName) {
  EXPECT_EQ(parse_url("gs://b/a/c.bin").value(), (Url{Scheme::kGs, "b", "a/c.bin"}));
  EXPECT_EQ(parse_url("gcs://b/n").value(), (Url{Scheme::kGs, "b", "n"}));
  EXPECT_EQ(parse_url("S3://My.Bucket_1-x/n").value(), (Url{Scheme::kS3, "My.Bucket_1-x", "n"}));
  EXPECT_EQ(parse_url("ais://b/n").value(), (Url{Scheme::kAis, "b", "n"}));
}

TEST(Url, MayNameNoObject) {
  EXPECT_EQ(parse_url("gs://b").value(), (Url{Scheme::kGs, "b", ""}));
  EXPECT_EQ(parse_url("gs://b/").value(), (Url{Scheme::kGs, "b", ""}));
}

TEST(Url, TakesNamesAsTheyAre) {
  EXPECT_EQ(parse_url("gs://b/50%#1?x=+ y\nz").value().name, "50%#1?x=+ y\nz");
  EXPECT_EQ(parse_url("gs://b//x//").value().name, "/x//");
  EXPECT_EQ(parse_url("gs://b/../c://d").value().name, "../c://d");
  EXPECT_EQ(parse_url("gs://b/\xC3\xA4").value().name, "\xC3\xA4");
}

TEST(Url, TakesPathsAsFiles) {
  EXPECT_EQ(parse_url("file:///a/b c").value(), (Url{Scheme::kFile, "", "/a/b c"}));
  EXPECT_EQ(parse_url("/a/b").value(), (Url{Scheme::kFile, "", "/a/b"}));
  EXPECT_EQ(parse_url("a:b/../c").value(), (Url{Scheme::kFile, "", "a:b/../c"}));
  EXPECT_EQ(parse_url("/not/\xFF/utf8").value().name, "/not/\xFF/utf8");
}

TEST(Url, ReadsWhatItWrites) {
  for (const char* text :
       {"gs://b/", "gs://b/a%20b", "s3://b//", "ais://b/n", "file:///a//b", "rel/path"}) {
    const Url url = parse_url(text).value();
    EXPECT_EQ(url.to_string(), text);
    EXPECT_EQ(parse_url(url.to_string()).value(), url);
  }
  EXPECT_EQ(parse_url("/a").value().to_string(), "file:///a");
}

TEST(Url, NamesWhereAIStoreHasABucketFrom) {
  const Url s3 = parse_url("ais+s3://b/n").value();
  EXPECT_EQ(s3, (Url{Scheme::kAis, "b", "n", "s3"}));
  EXPECT_EQ(s3.scheme_text(), "ais+s3");
  EXPECT_EQ(parse_url("AIS+AWS://b/n").value(), s3);
  EXPECT_EQ(parse_url("ais+gcp://b/").value().to_string(), "ais+gs://b/");
  EXPECT_EQ(parse_url("ais+azure://b/").value().to_string(), "ais+az://b/");
  EXPECT_EQ(parse_url("ais+oc://b/").value().to_string(), "ais+oci://b/");
  EXPECT_EQ(parse_url("ais+ht://b/").value().backend, "ht");
  EXPECT_THAT(message_of("ais+ftp://b/n"), HasSubstr("unknown scheme 'ais+ftp'"));
  EXPECT_THAT(message_of("gs+s3://b/n"), HasSubstr("unknown scheme"));
}

TEST(Url, NamesANamespaceOfAIStore) {
  const Url local = parse_url("ais://#ns-1/b/a#b").value();
  EXPECT_EQ(local, (Url{Scheme::kAis, "b", "a#b", "", "#ns-1"}));
  EXPECT_EQ(local.authority(), "#ns-1/b");
  EXPECT_EQ(parse_url("ais+s3://@uuid#ns/b").value(),
            (Url{Scheme::kAis, "b", "", "s3", "@uuid#ns"}));
  for (const char* text : {"ais://#ns/b/n", "ais://@uuid/b/", "ais+gs://@uuid#ns/b/@#/n"}) {
    EXPECT_EQ(parse_url(text).value().to_string(), text);
  }
  EXPECT_EQ(parse_url("ais://@#ns/b/n").value().to_string(), "ais://#ns/b/n");
  EXPECT_EQ(parse_url("ais://@#ns/b/n").value(), parse_url("ais://#ns/b/n").value());
  EXPECT_THAT(message_of("ais://#ns"), HasSubstr("bucket is missing"));
  EXPECT_THAT(message_of("ais://#ns/"), HasSubstr("bucket is missing"));
  for (const char* text :
       {"ais://#/b", "ais://@/b", "ais://@#/b", "ais://#a#b/b", "ais://@#a#b/b", "ais://@u#/b"}) {
    EXPECT_THAT(message_of(text), HasSubstr("is no namespace"));
  }
  EXPECT_THAT(message_of("gs://#ns/b"), HasSubstr("cannot be a bucket's name"));
}

TEST(Url, SaysWhatIsWrong) {
  EXPECT_THAT(message_of(""), HasSubstr("empty"));
  EXPECT_THAT(message_of("http://h/x"),
              AllOf(HasSubstr("'http://h/x'"), HasSubstr("unknown scheme 'http'"),
                    HasSubstr("gs, s3, ais, file")));
  EXPECT_THAT(message_of("://b/n"), HasSubstr("unknown scheme ''"));
  EXPECT_THAT(message_of("gs:///n"), HasSubstr("bucket is missing"));
  EXPECT_THAT(message_of("gs://b c/n"), HasSubstr("'b c' cannot be a bucket's name"));
  EXPECT_THAT(message_of("gs://../n"), HasSubstr("cannot be a bucket's name"));
  EXPECT_THAT(message_of("gs://b?x/n"), HasSubstr("cannot be a bucket's name"));
  EXPECT_THAT(message_of("file://host/p"), HasSubstr("file:///path"));
  EXPECT_THAT(message_of("gs://b/a\0b"sv), AllOf(HasSubstr("NUL"), HasSubstr("a\\x00b")));
  EXPECT_THAT(message_of("/a\0b"sv), HasSubstr("NUL"));
  EXPECT_THAT(message_of("gs://b/\xC3("), HasSubstr("not UTF-8"));
}

TEST(Url, IsNotTakenForAPathWithoutItsSecondSlash) {
  for (const char* text : {"gs:/b/n", "gcs:/b", "S3:/b/n", "ais:/b/n", "file:/a/b"}) {
    EXPECT_THAT(message_of(text), AllOf(HasSubstr(text), HasSubstr("pathlib")));
  }
  EXPECT_EQ(parse_url("./gs:/b/n").value(), (Url{Scheme::kFile, "", "./gs:/b/n"}));
  EXPECT_EQ(parse_url("gs:b/n").value(), (Url{Scheme::kFile, "", "gs:b/n"}));
  EXPECT_EQ(parse_url("a/gs:/b").value(), (Url{Scheme::kFile, "", "a/gs:/b"}));
}

TEST(Url, ShowsALongTextCut) {
  EXPECT_LT(message_of("x" + std::string(100'000, 'y') + "://").size(), 1'000u);
}

TEST(Endpoint, HasADefaultPortForEachScheme) {
  EXPECT_EQ(parse_endpoint("https://h", false).value(), (Endpoint{true, "h", 443, ""}));
  EXPECT_EQ(parse_endpoint("http://h", true).value(), (Endpoint{false, "h", 80, ""}));
  EXPECT_EQ(parse_endpoint("h", true).value(), (Endpoint{true, "h", 443, ""}));
  EXPECT_EQ(parse_endpoint("h:4443", false).value(), (Endpoint{false, "h", 4443, ""}));
  EXPECT_EQ(parse_endpoint("http://127.0.0.1:4443", true).value(),
            (Endpoint{false, "127.0.0.1", 4443, ""}));
}

TEST(Endpoint, TakesIpv6InBrackets) {
  EXPECT_EQ(parse_endpoint("[::1]:80", true).value(), (Endpoint{true, "::1", 80, ""}));
  EXPECT_EQ(parse_endpoint("http://[FE80::1]/x", true).value(),
            (Endpoint{false, "fe80::1", 80, "/x"}));
}

TEST(Endpoint, KeepsABasePathWithoutItsLastSlash) {
  EXPECT_EQ(parse_endpoint("https://X/base/", false).value(), (Endpoint{true, "x", 443, "/base"}));
  EXPECT_EQ(parse_endpoint("https://x/a/b//", false).value().base_path, "/a/b");
  EXPECT_EQ(parse_endpoint("https://x///", false).value().base_path, "");
}

TEST(Endpoint, WritesTheHostHeader) {
  EXPECT_EQ((Endpoint{true, "h", 443, ""}).authority(), "h");
  EXPECT_EQ((Endpoint{false, "h", 443, ""}).authority(), "h:443");
  EXPECT_EQ((Endpoint{false, "h", 80, ""}).authority(), "h");
  EXPECT_EQ((Endpoint{true, "::1", 80, ""}).authority(), "[::1]:80");
}

TEST(Endpoint, SaysWhatIsWrong) {
  const auto message = [](std::string_view text) {
    const Result<Endpoint> endpoint = parse_endpoint(text, true);
    return endpoint ? std::string("no error") : endpoint.error().message();
  };
  EXPECT_THAT(message(""), HasSubstr("no host name"));
  EXPECT_THAT(message("ftp://h"), HasSubstr("http:// or https://"));
  EXPECT_THAT(message("http://h:0"), HasSubstr("'0' is no port"));
  EXPECT_THAT(message("http://h:65536"), HasSubstr("no port"));
  EXPECT_THAT(message("http://h:"), HasSubstr("no port"));
  EXPECT_THAT(message("http://h:+1"), HasSubstr("no port"));
  EXPECT_THAT(message("http://::1"), HasSubstr("brackets"));
  EXPECT_THAT(message("http://[::1"), HasSubstr("']' is missing"));
  EXPECT_THAT(message("http://[::1]80"), HasSubstr("only a port"));
  EXPECT_THAT(message("http://[1.2.3.4]"), HasSubstr("no IPv6"));
  EXPECT_THAT(message("http://[::1\0x]"sv), HasSubstr("no IPv6"));
  EXPECT_THAT(message("http://h\r\nX: y"), HasSubstr("no host name"));
  EXPECT_THAT(message("http://h/a b"), HasSubstr("percent-encoded"));
  EXPECT_THAT(message("http://h/a?b"), HasSubstr("percent-encoded"));
}

TEST(RootUrl, HasOneForm) {
  const auto root = [](std::string_view text) {
    return root_url(parse_url(text).value(), "/here").to_string();
  };
  for (const std::string_view text : {"gs://b/run", "gs://b/run/", "gs://b/run//"}) {
    EXPECT_EQ(root(text), "gs://b/run") << text;
  }
  EXPECT_EQ(root("gs://b"), "gs://b/");
  EXPECT_EQ(root("gs://b//"), "gs://b/");
  // Names of objects are any text: nothing but the end is touched.
  EXPECT_EQ(root("gs://b//a//./../c/"), "gs://b//a//./../c");
  for (const std::string_view text :
       {"file:///d/run", "/d/run/", "/d//run", "/d/./run/.", "file:////d/run"}) {
    EXPECT_EQ(root(text), "file:///d/run") << text;
  }
  EXPECT_EQ(root("run"), "file:///here/run");
  EXPECT_EQ(root("./run/"), "file:///here/run");
  EXPECT_EQ(root("."), "file:///here");
  // What ".." means, the file system knows: there may be symbolic links.
  EXPECT_EQ(root("a/../b"), "file:///here/a/../b");
  EXPECT_EQ(root("/"), "file:///");
  EXPECT_EQ(root("file:///"), "file:///");
}

TEST(Endpoint, DoesNotShowAPassword) {
  EXPECT_THAT(parse_endpoint("http://me:secret@h", true).error().message(),
              Not(HasSubstr("secret")));
}

}  // namespace
}  // namespace headrace
