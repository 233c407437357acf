# Where a step's time goes: two bars per strategy. Data: index k = part k: row, side (0 predicted, 1 measured), from, to;
# last index: row, side, end, text, short text.
bar(row, side, edge) = both ? row + (side == 0 ? -0.36 : 0.02) + edge * 0.34 : row - 0.3 + edge * 0.6
do for [variant in "wide narrow png"] {
  reset
  W = width(variant); H = 96 + rows * (both ? 58 : 44) + (narrow(variant) ? 36 : 0)
  eval terminal_of(variant, H)
  set output output_of(variant)
  eval common; set key width (narrow(variant) ? -2 : 0)
  eval row_names
  left = 12.0 + text_px(longest_name); right = W - 16.0
  set lmargin at screen left / W; set rmargin at screen right / W
  label_px = text_px(narrow(variant) ? longest_short : longest_text)
  set xrange [0 : largest * (right - left) / (right - left - label_px - 10.0)]
  set yrange [rows - 0.4 : -0.6]
  unset grid
  set grid xtics lc rgb '#aaaaaa' lw 0.5 dt 3
  set ytics scale 0
  set xlabel 'one training step ('.unit.')'
  set key outside top center horizontal maxrows (narrow(variant) ? 2 : 1)
  plot for [k = 0 : 4] data index k using 3:(bar($1, $2, 0.5)):3:4:(bar($1, $2, 0)):(bar($1, $2, 1)) with boxxyerror lc rgb word(colours, k + 1) title part(k), \
       data index 5 using 3:(bar($1, $2, 0.5)):(narrow(variant) ? strcol(5) : strcol(4)) with labels left offset 0.6,0 notitle
  unset output
}
