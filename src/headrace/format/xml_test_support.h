// For tests of the readers of XML, which keep to the same references.
#pragma once

namespace headrace {

inline constexpr const char* kGoodReferences[] = {
    "&amp;", "&lt;&gt;&quot;&apos;", "&#9;", "&#x1F600;", "&#0065;", "&#1;", "&#x1f;", "&#xFFFF;"};
inline constexpr const char* kBadReferences[] = {
    "&",        "&;",         "&#;",   "&#x;", "&#0;",   "&#x0;", "&#4294967296;",
    "&#xD800;", "&#x110000;", "&#-5;", "&x;",  "& amp;", "&amp"};

}  // namespace headrace
