// XML without a tree: for listings, which have thousands of elements in a document.
#pragma once

#include <cstddef>
#include <cstdint>
#include <forward_list>
#include <string>
#include <string_view>
#include <vector>

namespace headrace {

constexpr std::string_view kXmlWhiteSpace = " \t\r\n";

// Without what there is of it at both ends.
constexpr std::string_view without_white_space(std::string_view text) {
  const size_t begin = text.find_first_not_of(kXmlWhiteSpace);
  if (begin == text.npos) return "";
  return text.substr(begin, text.find_last_not_of(kXmlWhiteSpace) - begin + 1);
}

// True if every '&' of a document, outside of comments and CDATA, begins a reference to a
// character: "&amp;" and its kind, or a number.
bool has_good_references(std::string_view xml);

// A text as it stands in a document, which it points into.
struct XmlText {
  std::string_view raw = {};
  bool is_plain = true;  // `raw` is what is meant
  bool is_cdata = false;

  // What is meant: `raw`, or `scratch`, in which references are characters and CR and CR LF are LF.
  std::string_view read(std::string& scratch) const { return is_plain ? raw : meant(scratch); }
  std::string_view meant(std::string& scratch) const;
};

// Goes through a document from its beginning to its end, element by element, and checks all of it,
// also what nobody asks for:
//
//   XmlScanner xml(document);
//   if (!xml.enter()) ...       // the root
//   while (xml.enter()) {       // what is inside
//     if (xml.name() == "Key") {
//       xml.leave_text(key);
//     } else {
//       xml.leave();
//     }
//   }
//   if (!xml.is_whole()) ...    // then nothing that was read counts
//
// Behind a mistake there are no elements, and texts are empty. Declarations of document types are a
// mistake, so there is nothing to expand or fetch; so are NUL, and references to anything but
// characters. Thread: confined. Borrows the document.
class XmlScanner {
 public:
  // Elements inside of each other; more are a mistake.
  static constexpr size_t kMaxDepth = 64;

  explicit XmlScanner(std::string_view document);
  XmlScanner(const XmlScanner&) = delete;
  XmlScanner& operator=(const XmlScanner&) = delete;

  // Enters the next element inside of the current one. At its end: leaves the current one, false.
  bool enter();
  // Of the element that was entered last; without the prefix of a namespace.
  std::string_view name() const { return name_; }
  // Skips what is left of the current element, and leaves it.
  void leave();
  // The same of an element that has nothing but text inside, in pieces where there are comments or
  // CDATA: what xml_text() gives of it. White space between pieces is none. False if there are
  // elements. The text lasts as long as the scanner.
  bool leave_text(XmlText& text);
  // Goes to the end of the document: true if it is one, with one root.
  bool is_whole();

 private:
  enum class Token : uint8_t { kBegin, kEnd, kText, kCdata, kNothing };

  // Where texts are not plain, asked from the front to the back: no byte is searched twice.
  class Marks {
   public:
    explicit Marks(std::string_view xml);
    // `begin` never decreases.
    bool any_in(const char* begin, const char* end) {
      if (begin > next_) search(begin);
      return next_ < end;
    }

   private:
    [[gnu::noinline]] void search(const char* begin);  // rare, and any_in is called for each text
    // Where `c` is from `begin` on, or the end.
    const char* next(char c, const char* begin) const;
    const char* const end_;
    const char *reference_, *return_;  // the next '&' and CR, or the end
    const char* next_;
  };

  Token next();
  // If what is left of the current element is a text, as of most elements: leaves it, and `text` is
  // the text.
  bool take_rest(XmlText& text);
  Token take_begin();
  Token take_end();
  Token take_text();
  Token take_cdata();
  // False if it is none, or does not end.
  bool skip_comment();
  bool skip_instruction();
  bool skip_past(std::string_view end, const char* begin);
  // Returns where the tag ends, "/>" or ">"; or null.
  const char* skip_attributes(const char* at) const;
  XmlText text_between(const char* begin, const char* end) {
    return {.raw = {begin, end}, .is_plain = !marks_.any_in(begin, end)};
  }
  // Null if there is none.
  const char* find(char c, const char* begin) const;
  Token fail();

  // The document ends with '>', where each loop over names or white space stops.
  const char *at_, *end_;
  std::vector<std::string_view> open_;  // the elements that were entered and not left
  std::string_view name_;
  XmlText text_;                           // of the last token
  std::forward_list<std::string> joined_;  // texts that came in pieces
  Marks marks_;
  bool is_empty_ = false;  // the current element is "<a/>"
  bool has_root_ = false, is_good_ = true;
};

}  // namespace headrace
