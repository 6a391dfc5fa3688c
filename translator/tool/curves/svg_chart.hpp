#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "../terminal/status_line.hpp"
#include "training_run.hpp"

namespace translator {

/// Maps a range of values to coordinates of the picture.
struct Scale {
  double low = 0, high = 1;  // values
  double from = 0, to = 1;   // pixels

  double operator()(double value) const { return from + (value - low) / (high - low) * (to - from); }

  /// Round numbers within the range, about `count` of them.
  std::vector<double> ticks(int count) const {
    const double rough = (high - low) / count;
    const double power = std::pow(10, std::floor(std::log10(rough)));
    double step = 10 * power;
    for (const double factor : {5.0, 2.0, 1.0}) {
      if (factor * power >= rough * 0.99) step = factor * power;
    }
    std::vector<double> all;
    for (double k = std::ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; ++k)
      all.push_back(k == 0 ? 0 : k * step);
    return all;
  }
};

/// "12,000", "0.25", "4e-04".
inline std::string tick_text(double value) {
  if (value != 0 && std::abs(value) < 1e-2) return format("%.2g", value);
  if (std::abs(value) >= 1e6) return format("%g M", value / 1e6);
  if (std::abs(value) < 1000) return format("%g", value);
  return format("%d,%03d", static_cast<int>(value) / 1000, static_cast<int>(value) % 1000);
}

/// Escapes a text for XML.
inline std::string xml_text(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    escaped += c == '<'   ? "&lt;"
               : c == '>' ? "&gt;"
               : c == '&' ? "&amp;"
               : c == '"' ? "&quot;"
                          : std::string(1, c);
  }
  return escaped;
}

/// A curve in a panel: its points and style.
struct DrawnCurve {
  Curve points;
  std::size_t colour = 0;  ///< from 0
  std::string style = "";  ///< classes of the style sheet: "thin", "dashed"
  bool dots = false;       ///< at each point
};

/// One panel of a picture: curves over a common axis.
struct Panel {
  std::string title;
  double height = 200;
  bool from_zero = false;
  std::vector<DrawnCurve> curves;
};

/// Writes a picture of panels, one below the other, with a common axis; readable on light and dark pages.
class SvgChart {
 public:
  static constexpr double width = 760, left = 64, right = 24, gap = 46;
  static constexpr std::size_t num_colours = 6;

  /// names: of the runs, one per colour. x_title: title of the common axis.
  SvgChart(std::vector<std::string> names, std::string x_title)
      : names_(std::move(names)), x_title_(std::move(x_title)) {}

  std::string draw(const std::vector<Panel>& panels) const {
    Scale x{0, 0, left, width - right};
    for (const Panel& panel : panels) {
      for (const DrawnCurve& curve : panel.curves) {
        for (const CurvePoint& p : curve.points) x.high = std::max(x.high, p.x);
      }
    }
    if (!(x.high > 0)) x.high = 1;
    std::string body = legend();
    double top = 18 + 20 * static_cast<double>(legend_rows().size()) + 26;
    for (std::size_t k = 0; k < panels.size(); ++k) {
      body += draw(panels[k], x, top, k, k + 1 == panels.size());
      top += panels[k].height + gap;
    }
    const double height = top + 4;
    return format(
               "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" width=\"%g\" height=\"%g\" "
               "role=\"img\">\n",
               width, height, width, height) +
           "<title>Curves of trainings</title>\n" + style_sheet() +
           format("<rect class=\"page\" width=\"%g\" height=\"%g\" rx=\"6\"/>\n", width, height) + body +
           "</svg>\n";
  }

 private:
  static std::string style_sheet() {
    // Colours that are distinguishable with any kind of colour vision (Okabe & Ito 2008), lighter on dark
    // pages.
    const char* light[num_colours] = {"#0072b2", "#d55e00", "#007f5f", "#b4569a", "#8a6d00", "#2f9bd6"};
    const char* dark[num_colours] = {"#56b4e9", "#ff8c42", "#2fc79a", "#e39ccb", "#e0c040", "#a7d8f5"};
    const auto colours = [](const char* const* list) {
      std::string text;
      for (std::size_t k = 0; k < num_colours; ++k)
        text += format("  .c%zu { stroke: %s } .d%zu { fill: %s }\n", k, list[k], k, list[k]);
      return text;
    };
    return std::string(
               "<style>\n"
               "  text { font: 12px Helvetica, Arial, sans-serif; fill: #222 }\n"
               "  .title { font-weight: bold }\n"
               "  .page { fill: #fff } .grid { stroke: #e4e4e4 } .axis { stroke: #777 }\n"
               "  polyline, .key { fill: none; stroke-width: 2; stroke-linejoin: round }\n"
               "  .thin { stroke-width: 1.2; stroke-opacity: 0.55 } .dashed { stroke-dasharray: 6 4 }\n"
               "  .cycle1 { stroke-dasharray: 2 3 } .cycle2 { stroke-dasharray: 10 3 2 3 }\n") +
           colours(light) +
           "  @media (prefers-color-scheme: dark) {\n"
           "  text { fill: #e6e6e6 }\n"
           "  .page { fill: #15191f } .grid { stroke: #333a44 } .axis { stroke: #8b949e }\n" +
           colours(dark) + "  }\n</style>\n";
  }

  static std::string line(double x1, double y1, double x2, double y2, const std::string& style) {
    return format("<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", style.c_str(), x1,
                  y1, x2, y2);
  }
  static std::string text(double x, double y, const std::string& content, const char* anchor,
                          const char* style = "") {
    return format("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" class=\"%s\">", x, y, anchor, style) +
           xml_text(content) + "</text>\n";
  }
  static std::size_t colour_of(std::size_t run) { return run % num_colours; }
  // Runs beyond the number of colours are dashed.
  static const char* cycle_of(std::size_t run) {
    return run < num_colours ? "" : run < 2 * num_colours ? " cycle1" : " cycle2";
  }
  static double text_width(const std::string& content) { return 6.6 * static_cast<double>(content.size()); }

  // The runs in rows that fit the width.
  std::vector<std::vector<std::size_t>> legend_rows() const {
    std::vector<std::vector<std::size_t>> rows(1);
    double x = left;
    for (std::size_t k = 0; k < names_.size(); ++k) {
      const double taken = 30 + text_width(names_[k]) + 20;
      if (!rows.back().empty() && x + taken > width - right) {
        rows.emplace_back();
        x = left;
      }
      rows.back().push_back(k);
      x += taken;
    }
    return rows;
  }
  std::string legend() const {
    std::string all;
    double y = 26;
    for (const auto& row : legend_rows()) {
      double x = left;
      for (const std::size_t k : row) {
        all += line(x, y - 4, x + 22, y - 4, format("key c%zu%s", colour_of(k), cycle_of(k)));
        all += text(x + 30, y, names_[k], "start");
        x += 30 + text_width(names_[k]) + 20;
      }
      y += 20;
    }
    return all;
  }

  static Scale scale_of(const Panel& panel, double top) {
    // The first updates, whose loss is far above all others, may be cut off at the top of the panel.
    double low = HUGE_VAL, high = -HUGE_VAL;
    for (const DrawnCurve& curve : panel.curves) {
      const std::size_t first = panel.from_zero ? 0 : curve.points.size() * 8 / 100;
      for (std::size_t k = first; k < curve.points.size(); ++k) {
        low = std::min(low, curve.points[k].y);
        high = std::max(high, curve.points[k].y);
      }
    }
    if (panel.from_zero) low = std::min(low, 0.0);
    if (!(high > low)) high = low + std::max(1e-9, std::abs(low));
    const double room = 0.06 * (high - low);
    return {panel.from_zero ? low : low - room, high + room, top + panel.height, top};
  }

  std::string draw(const Panel& panel, const Scale& x, double top, std::size_t number, bool last) const {
    const Scale y = scale_of(panel, top);
    const double bottom = top + panel.height;
    std::string all = text(left, top - 9, panel.title, "start", "title");
    for (const double value : y.ticks(panel.height > 150 ? 6 : 3)) {
      all += line(left, y(value), width - right, y(value), "grid");
      all += text(left - 8, y(value) + 4, tick_text(value), "end");
    }
    for (const double value : x.ticks(8)) {
      all += line(x(value), bottom, x(value), bottom + 5, "axis");
      all += text(x(value), bottom + 18, tick_text(value), "middle");
    }
    all += line(left, bottom, width - right, bottom, "axis") + line(left, top, left, bottom, "axis");
    if (last) all += text((left + width - right) / 2, bottom + 36, x_title_, "middle");
    all += format("<clipPath id=\"p%zu\"><rect x=\"%g\" y=\"%g\" width=\"%g\" height=\"%g\"/></clipPath>\n",
                  number, left, top - 4, width - right - left + 6, panel.height + 8);
    all += format("<g clip-path=\"url(#p%zu)\">\n", number);
    for (const DrawnCurve& curve : panel.curves) {
      const std::size_t colour = colour_of(curve.colour);
      std::string points;
      for (const CurvePoint& p : curve.points) points += format("%.1f,%.1f ", x(p.x), y(p.y));
      all += format("<polyline class=\"c%zu %s%s\" points=\"", colour, curve.style.c_str(),
                    cycle_of(curve.colour)) +
             points + "\"/>\n";
      if (!curve.dots) continue;
      for (const CurvePoint& p : curve.points)
        all += format("<circle class=\"d%zu\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.8\"/>\n", colour, x(p.x), y(p.y));
    }
    return all + "</g>\n";
  }

  std::vector<std::string> names_;
  std::string x_title_;
};

}  // namespace translator
