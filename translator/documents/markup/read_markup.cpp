#include "translator/documents/markup/read_markup.hpp"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "eigenformer/data/text/utf8.hpp"
#include "translator/documents/markup/parsing/entities.hpp"
#include "translator/documents/markup/placeholders.hpp"

namespace eigenformer::detail {

namespace {

// Whether an HTML element's content is code or a formula, which is not translated. name: in lower case.
bool is_code_element(std::string_view name) {
  static constexpr auto names =
      std::to_array<std::string_view>({"code", "kbd", "math", "pre", "samp", "svg", "tt", "var"});
  return std::ranges::binary_search(names, name);
}

// Whether the tags of an HTML element end a sentence: elements displayed as blocks, cells or items, form
// controls, and line breaks.
bool is_block_element(std::string_view name) {
  static constexpr auto names = std::to_array<std::string_view>(
      {"address",  "article",  "aside",  "base",     "blockquote", "body",     "br",       "button",
       "caption",  "center",   "col",    "colgroup", "dd",         "details",  "dialog",   "dir",
       "div",      "dl",       "dt",     "fieldset", "figcaption", "figure",   "footer",   "form",
       "frame",    "frameset", "h1",     "h2",       "h3",         "h4",       "h5",       "h6",
       "head",     "header",   "hgroup", "hr",       "html",       "iframe",   "legend",   "li",
       "link",     "main",     "menu",   "meta",     "nav",        "noframes", "noscript", "ol",
       "optgroup", "option",   "p",      "pre",      "search",     "section",  "select",   "source",
       "summary",  "table",    "tbody",  "td",       "template",   "textarea", "tfoot",    "th",
       "thead",    "title",    "tr",     "track",    "ul",         "video",    "xmp"});
  return std::ranges::binary_search(names, name);
}

// Collects the text and markup of one segment.
class SegmentBuilder {
 public:
  // Deeper nesting ends a segment, which bounds the work that a hostile document can cause.
  static constexpr std::size_t max_depth = 100;

  SegmentBuilder(std::string_view document, MarkupFormat format)
      : all_(document), html_(format == MarkupFormat::html) {}

  // Whether one more element would nest too deeply.
  bool full_for_opening() const { return open_.size() >= max_depth; }
  bool full_for_closing() const { return open_.empty() && begun_before_ >= max_depth; }

  // Adds text of the document. decode: decode character references.
  void text(ByteSpan span, bool decode) {
    const std::string_view raw = span.of(all_);
    std::size_t literal = 0;
    for (std::size_t at = decode ? raw.find('&') : raw.npos; at != raw.npos; at = raw.find('&', at)) {
      const CharacterReference reference = character_reference(raw.substr(at), html_);
      if (reference.length == 0) {
        ++at;
        continue;
      }
      append(raw.substr(literal, at - literal), span.begin + literal);
      const std::string_view spelled = raw.substr(at, reference.length);
      if (reference.character.empty()) {
        piece(spelled, spelled);
      } else {
        const std::size_t begin = segment_.text.size();
        append(reference.character, span.begin + at);
        segment_.spellings.push_back({{begin, segment_.text.size()}, spelled});
      }
      at += reference.length;
      literal = at;
    }
    append(raw.substr(std::min(literal, raw.size())), span.begin + literal);
  }

  // Adds text that is not translated; raw: as written in the document.
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

  void close(std::string_view tag, const std::string& name) {
    const auto found = std::find(names_.rbegin(), names_.rend(), name);
    if (found != names_.rend()) {
      // Unclosed elements inside overlap it; their tags stay where they are, as markup without text.
      for (; names_.back() != name; pop()) leave_unclosed(open_.back());
      segment_.elements[open_.back()].text.end = segment_.text.size();
      segment_.elements[open_.back()].close = tag;
      pop();
    } else if (open_.empty()) {
      // It closes an element of an earlier segment, which contains all of this segment so far.
      InlineElement whole;
      whole.close = tag;
      whole.begins_before = true;
      whole.text = {0, segment_.text.size()};
      for (InlineElement& e : segment_.elements)
        e.parent = e.parent == InlineElement::none ? 0 : e.parent + 1;
      segment_.elements.insert(segment_.elements.begin(), whole);
      ++begun_before_;
    } else {
      alone(tag);
    }
  }

  // Adds markup without text: a void element, a comment.
  void alone(std::string_view markup) { add(markup); }

  // Returns the segment; open elements end in a later one.
  MarkupSegment finish(bool protect) {
    for (const std::size_t i : open_) {
      segment_.elements[i].text.end = segment_.text.size();
      segment_.elements[i].ends_after = true;
    }
    number_subtrees();
    if (protect) add_placeholders();
    return std::move(segment_);
  }

 private:
  std::size_t position(std::string_view raw) const {
    return static_cast<std::size_t>(raw.data() - all_.data());
  }

  void append(std::string_view text, std::size_t raw) {
    if (text.empty()) return;
    runs_.push_back({segment_.text.size(), raw});
    segment_.text += text;
  }

  std::size_t add(std::string_view tag) {
    const std::size_t here = segment_.text.size();
    InlineElement element;
    element.text = {here, here};
    element.open = tag;
    if (!open_.empty()) element.parent = open_.back();
    segment_.elements.push_back(element);
    return segment_.elements.size() - 1;
  }

  // Moves the children of an element without a closing tag to its parent.
  void leave_unclosed(std::size_t i) {
    for (std::size_t k = i + 1; k < segment_.elements.size(); ++k)
      if (segment_.elements[k].parent == i) segment_.elements[k].parent = segment_.elements[i].parent;
  }

  void pop() {
    names_.pop_back();
    open_.pop_back();
  }

  void number_subtrees() {
    auto& elements = segment_.elements;
    for (std::size_t i = elements.size(); i-- > 0;) {
      elements[i].subtree_end = std::max(elements[i].subtree_end, i + 1);
      if (elements[i].parent == InlineElement::none) continue;
      InlineElement& parent = elements[elements[i].parent];
      parent.subtree_end = std::max(parent.subtree_end, elements[i].subtree_end);
    }
  }

  // The position in the document of a byte of the segment's text.
  std::size_t raw_position(std::size_t text) const {
    const auto run = std::ranges::upper_bound(runs_, text, {}, &Run::text) - 1;
    return run->raw + (text - run->text);
  }

  // Adds placeholders that no tag and no other piece cuts.
  void add_placeholders() {
    const std::vector<ProtectedPiece> given = segment_.pieces;
    std::vector<std::size_t> cuts;
    for (const InlineElement& e : segment_.elements) cuts.insert(cuts.end(), {e.text.begin, e.text.end});
    for (const ProtectedPiece& p : given) cuts.insert(cuts.end(), {p.text.begin, p.text.end});
    std::sort(cuts.begin(), cuts.end());
    for (const ByteSpan& span : find_placeholders(segment_.text)) {
      const auto cut = std::upper_bound(cuts.begin(), cuts.end(), span.begin);
      if ((cut != cuts.end() && *cut < span.end) || in_piece(given, span.begin)) continue;
      segment_.pieces.push_back({span, raw_of(span), true});
    }
    std::ranges::sort(segment_.pieces, {}, [](const ProtectedPiece& p) { return p.text.begin; });
  }

  static bool in_piece(const std::vector<ProtectedPiece>& pieces, std::size_t at) {
    const auto after =
        std::ranges::upper_bound(pieces, at, {}, [](const ProtectedPiece& p) { return p.text.begin; });
    return after != pieces.begin() && at < (after - 1)->text.end;
  }

  std::string_view raw_of(ByteSpan span) const {
    const std::size_t begin = raw_position(span.begin);
    // The last character may be written as a reference.
    const auto& spellings = segment_.spellings;
    const auto last = std::ranges::lower_bound(spellings, span.end, {},
                                               [](const SpelledCharacter& s) { return s.text.end; });
    const std::size_t end = last != spellings.end() && last->text.end == span.end
                                ? position(last->raw) + last->raw.size()
                                : raw_position(span.end - 1) + 1;
    return all_.substr(begin, end - begin);
  }

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
