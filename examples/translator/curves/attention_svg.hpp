#pragma once

#include <span>
#include <string>
#include <vector>

#include "eigenformer/generation/search/hypothesis.hpp"
#include "svg_chart.hpp"

namespace translator {

/// Draws the attention of the last layers of both stacks as heat maps, one row for each kind of attention,
/// one column for each head, readable on light and dark pages. source_words, target_words: as a model reads
/// and writes them, the end included.
inline std::string attention_svg(const eigenformer::AttentionMaps& maps,
                                 const std::vector<std::string>& source_words,
                                 const std::vector<std::string>& target_words) {
  namespace ef = eigenformer;
  static constexpr double cell = 15, label = 84, gap = 18, title = 20, head = 16, right = 14;
  // The decoder reads what it has written so far: "(begin)" in place of the end.
  std::vector<std::string> read_words{"(begin)"};
  read_words.insert(read_words.end(), target_words.begin(), target_words.end() - 1);
  struct Row {
    const char* title;
    const ef::Tensor<float>* weights;  // (heads, queries, keys)
    const std::vector<std::string>*queries, *keys;
  };
  std::vector<Row> rows{{"Encoder: self-attention", &maps.source.back(), &source_words, &source_words}};
  if (!maps.target.empty())
    rows.push_back({"Decoder: self-attention, to what is written so far", &maps.target.back(), &target_words,
                    &read_words});
  rows.push_back({"Decoder: attention to the source", &maps.memory.back(), &target_words, &source_words});

  std::string body;
  double width = 0, top = 8;
  for (const Row& row : rows) {
    const ef::index_t heads = row.weights->dim(0), queries = row.weights->dim(1), keys = row.weights->dim(2);
    body += format("<text class=\"title\" x=\"8\" y=\"%g\">", top + 12) + row.title + "</text>\n";
    const double map_top = top + title + head + label;
    for (ef::index_t q = 0; q < queries; ++q) {
      body += format("<text x=\"%g\" y=\"%g\" text-anchor=\"end\">", label,
                     map_top + cell * (static_cast<double>(q) + 0.75)) +
              xml_text((*row.queries)[static_cast<std::size_t>(q)]) + "</text>\n";
    }
    for (ef::index_t h = 0; h < heads; ++h) {
      const double left = label + 6 + static_cast<double>(h) * (cell * static_cast<double>(keys) + gap);
      body += format("<text class=\"head\" x=\"%g\" y=\"%g\">head %d</text>\n", left, top + title + head - 4,
                     static_cast<int>(h));
      for (ef::index_t k = 0; k < keys; ++k) {
        const double x = left + cell * (static_cast<double>(k) + 0.75), y = map_top - 4;
        body += format("<text transform=\"translate(%g %g) rotate(-90)\">", x, y) +
                xml_text((*row.keys)[static_cast<std::size_t>(k)]) + "</text>\n";
      }
      const float* weights = row.weights->data() + h * queries * keys;
      for (ef::index_t i = 0; i < queries * keys; ++i) {
        if (weights[i] < 0.005f) continue;
        body += format(
            "<rect class=\"weight\" x=\"%g\" y=\"%g\" width=\"%g\" height=\"%g\" fill-opacity=\"%.2f\"/>\n",
            left + cell * static_cast<double>(i % keys), map_top + cell * static_cast<double>(i / keys), cell,
            cell, static_cast<double>(weights[i]));
      }
      body += format("<rect class=\"frame\" x=\"%g\" y=\"%g\" width=\"%g\" height=\"%g\"/>\n", left, map_top,
                     cell * static_cast<double>(keys), cell * static_cast<double>(queries));
      width = std::max(width, left + cell * static_cast<double>(keys) + right);
    }
    top = map_top + cell * static_cast<double>(queries) + gap;
  }
  return format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" width=\"%g\" height=\"%g\" "
             "role=\"img\">\n",
             width, top, width, top) +
         "<title>Attention of a sentence</title>\n"
         "<style>\n"
         "  text { font: 12px Helvetica, Arial, sans-serif; fill: #222 }\n"
         "  .title { font-weight: bold } .head { fill: #777 }\n"
         "  .page { fill: #fff } .weight { fill: #0072b2 } .frame { fill: none; stroke: #bbb }\n"
         "  @media (prefers-color-scheme: dark) {\n"
         "  text { fill: #e6e6e6 } .head { fill: #8b949e }\n"
         "  .page { fill: #15191f } .weight { fill: #56b4e9 } .frame { stroke: #4a525c }\n"
         "  }\n</style>\n" +
         format("<rect class=\"page\" width=\"%g\" height=\"%g\" rx=\"6\"/>\n", width, top) + body +
         "</svg>\n";
}

}  // namespace translator
