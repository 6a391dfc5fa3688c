#include "translator/documents/markup/read_markup.hpp"

#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "eigenformer/data/text/utf8.hpp"
#include "translator/documents/markup/parsing/html_elements.hpp"
#include "translator/documents/markup/segment_builder.hpp"

namespace eigenformer::detail {

namespace {

// Splits a document into segments.
class MarkupReader {
 public:
  MarkupReader(std::string_view document, MarkupFormat format, bool protect)
      : all_(document), format_(format), protect_(protect), builder_(document, format) {
    if (format == MarkupFormat::html) tokens_ = html_tokens(document);
    if (format == MarkupFormat::xml) tokens_ = xml_tokens(document);
    if (format == MarkupFormat::text) tokens_.push_back({MarkupKind::text, {0, document.size()}});
    find_partners();
    if (format == MarkupFormat::xml) find_inline_names();
  }

  MarkupDocument run() {
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      const MarkupToken& token = tokens_[i];
      if (token.kind == MarkupKind::open && partner_[i] != none && stays(token)) {
        const std::size_t last = partner_[i];
        untranslated(i, last);
        i = last;
      } else if (is_boundary(token)) {
        boundary(token.span);
      } else {
        add(token);
      }
    }
    boundary({all_.size(), all_.size()});
    result_.after = all_.substr(copied_);
    return std::move(result_);
  }

 private:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

  // Finds the closing tag of each opening tag by name, also for overlapping tags.
  void find_partners() {
    partner_.assign(tokens_.size(), none);
    std::unordered_map<std::string_view, std::vector<std::size_t>> open;
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      if (tokens_[i].kind == MarkupKind::open) open[tokens_[i].name].push_back(i);
      if (tokens_[i].kind != MarkupKind::close) continue;
      std::vector<std::size_t>& of_name = open[tokens_[i].name];
      if (of_name.empty()) continue;
      partner_[of_name.back()] = i;
      of_name.pop_back();
    }
  }

  // XML does not define which elements end a sentence. Those with text beside them anywhere in the document
  // count as inline, all others as structure.
  void find_inline_names() {
    struct Content {
      bool text = false;
      std::vector<std::string_view> children{};
    };
    std::vector<Content> open(1);
    const auto leave = [&] {
      if (open.back().text) inline_names_.insert(open.back().children.begin(), open.back().children.end());
      open.pop_back();
    };
    for (const MarkupToken& token : tokens_) {
      const bool text = token.kind == MarkupKind::text || token.kind == MarkupKind::cdata_text;
      if (text && !is_blank(token.span.of(all_))) open.back().text = true;
      if (token.kind == MarkupKind::open || token.kind == MarkupKind::empty)
        open.back().children.push_back(token.name);
      if (token.kind == MarkupKind::open) open.emplace_back();
      if (token.kind == MarkupKind::close) leave();
    }
    leave();
  }

  bool is_boundary(const MarkupToken& token) const {
    const bool tag =
        token.kind == MarkupKind::open || token.kind == MarkupKind::close || token.kind == MarkupKind::empty;
    if (format_ == MarkupFormat::xml) return tag && inline_names_.count(token.name) == 0;
    return (tag || token.kind == MarkupKind::verbatim) && is_block_element(token.name);
  }

  bool stays(const MarkupToken& token) const {
    return token.untranslated || (format_ == MarkupFormat::html && is_code_element(token.name));
  }

  // Adds an element that is not translated: the tokens from first to last.
  void untranslated(std::size_t first, std::size_t last) {
    constexpr std::size_t longest = 100;  // bytes that a model sees of it
    const ByteSpan span{tokens_[first].span.begin, tokens_[last].span.end};
    if (is_boundary(tokens_[first])) return boundary(span);
    std::string visible;
    for (std::size_t i = first; i < last && visible.size() <= longest; ++i) {
      const bool text = tokens_[i].kind == MarkupKind::text;
      if (text || tokens_[i].kind == MarkupKind::cdata_text) visible += decoded(tokens_[i].span, text);
    }
    visible = normalize_text(visible);
    if (visible.empty() || visible.size() > longest) {
      builder_.alone(span.of(all_));
    } else {
      builder_.piece(visible, span.of(all_));
    }
  }

  std::string decoded(ByteSpan span, bool references) const {
    SegmentBuilder builder(all_, format_);
    builder.text(span, references);
    return builder.finish(false).text;
  }

  void add(const MarkupToken& token) {
    const std::string_view raw = token.span.of(all_);
    switch (token.kind) {
      case MarkupKind::text:
        return builder_.text(token.span, format_ != MarkupFormat::text);
      case MarkupKind::cdata_text:
        return builder_.text(token.span, false);
      case MarkupKind::empty:
      case MarkupKind::verbatim:
        return builder_.alone(raw);
      case MarkupKind::open:
      case MarkupKind::cdata_open:
        if (builder_.full_for_opening() && token.kind == MarkupKind::open) return boundary(token.span);
        return builder_.open(raw, token.name, token.kind == MarkupKind::cdata_open);
      case MarkupKind::close:
      case MarkupKind::cdata_close:
        if (builder_.full_for_closing()) return boundary(token.span);
        return builder_.close(raw, token.name);
    }
  }

  // Ends the segment; the bytes of the boundary belong to no segment.
  void boundary(ByteSpan span) {
    MarkupSegment segment = builder_.finish(protect_);
    builder_ = SegmentBuilder(all_, format_);
    if (!is_blank(segment.text)) {
      segment.before = all_.substr(copied_, begin_ - copied_);
      copied_ = span.begin;
      result_.segments.push_back(std::move(segment));
    }
    begin_ = span.end;
  }

  std::string_view all_;
  MarkupFormat format_;
  bool protect_;
  std::vector<MarkupToken> tokens_;
  std::vector<std::size_t> partner_;
  std::unordered_set<std::string_view> inline_names_;
  SegmentBuilder builder_;
  MarkupDocument result_;
  std::size_t begin_ = 0;   // of the current segment
  std::size_t copied_ = 0;  // the document is covered by segments and their `before` up to here
};

}  // namespace

MarkupDocument read_markup(std::string_view document, MarkupFormat format, bool protect) {
  return MarkupReader(document, format, protect).run();
}

}  // namespace eigenformer::detail
