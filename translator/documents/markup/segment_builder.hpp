#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "eigenformer/data/text/byte_span.hpp"
#include "translator/documents/markup/read_markup.hpp"

namespace eigenformer::detail {

/// Collects the text and markup of one segment.
class SegmentBuilder {
 public:
  /// Deeper nesting ends a segment, which bounds the work that a hostile document can cause.
  static constexpr std::size_t max_depth = 100;

  SegmentBuilder(std::string_view document, MarkupFormat format)
      : all_(document), html_(format == MarkupFormat::html) {}

  /// Whether one more element would nest too deeply.
  bool full_for_opening() const { return open_.size() >= max_depth; }
  bool full_for_closing() const { return open_.empty() && begun_before_ >= max_depth; }

  /// Adds text of the document. decode: decode character references.
  void text(ByteSpan span, bool decode);

  /// Adds text that is not translated; raw: as written in the document.
  void piece(std::string_view text, std::string_view raw) {
    const std::size_t begin = segment_.text.size();
    append(text, position(raw));
    segment_.pieces.push_back({{begin, segment_.text.size()}, raw, false});
  }

  void open(std::string_view tag, const std::string& name, bool cdata = false) {
    names_.push_back(name);
    open_.push_back(add(tag));
    segment_.elements.back().cdata = cdata;
  }

  void close(std::string_view tag, const std::string& name);

  /// Adds markup without text: a void element, a comment.
  void alone(std::string_view markup) { add(markup); }

  /// Returns the segment; open elements end in a later one.
  MarkupSegment finish(bool protect);

 private:
  std::size_t position(std::string_view raw) const {
    return static_cast<std::size_t>(raw.data() - all_.data());
  }

  void append(std::string_view text, std::size_t raw) {
    if (text.empty()) return;
    runs_.push_back({segment_.text.size(), raw});
    segment_.text += text;
  }

  std::size_t add(std::string_view tag);
  void end_here(std::size_t i, bool whole);

  void pop() {
    names_.pop_back();
    open_.pop_back();
  }

  void number_subtrees();
  std::size_t raw_position(std::size_t text) const;
  void add_placeholders();
  static bool in_piece(const std::vector<ProtectedPiece>& pieces, std::size_t at);
  std::string_view raw_of(ByteSpan span) const;

  // A stretch of text that equals the document's bytes, or a character written as a reference.
  struct Run {
    std::size_t text, raw;
  };

  std::string_view all_;
  bool html_;
  MarkupSegment segment_;
  std::vector<Run> runs_;
  std::vector<std::size_t> open_;   // indices of open elements
  std::vector<std::string> names_;  // and their names
  std::size_t begun_before_ = 0;
};

}  // namespace eigenformer::detail
