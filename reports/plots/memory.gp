# Stacked memory per strategy. Data: index k = category k: row, from, to; last index: row, end, text.
do for [variant in "wide narrow png"] {
  reset
  W = width(variant); H = 118 + rows * 44 + (narrow(variant) ? 64 : 0)
  eval terminal_of(variant, H)
  set output output_of(variant)
  eval common; set key width (narrow(variant) ? -2 : 0)
  eval row_names
  left = 12.0 + text_px(longest_name); right = W - 16.0
  set lmargin at screen left / W; set rmargin at screen right / W
  label_px = text_px(narrow(variant) ? longest_short : longest_text)
  xmax = largest * (right - left) / (right - left - label_px - 10.0)
  shown = capacity > 0 && capacity < 3 * largest
  set xrange [0 : (shown && capacity * 1.03 > xmax) ? capacity * 1.03 : xmax]
  set yrange [rows - 0.4 : shown ? -0.95 : -0.6]
  unset grid
  set grid xtics lc rgb '#aaaaaa' lw 0.5 dt 3
  set ytics scale 0
  set xlabel 'at the peak of the fullest rank ('.unit.')'
  set key outside top center horizontal maxrows (narrow(variant) ? 4 : 2)
  if (shown) {
    set arrow 1 from capacity, graph 0 to capacity, graph 1 nohead lc rgb vermillion lw 2 dt 2
    set label 1 'capacity '.capacity_text at capacity, first -0.7 right offset -0.6,0 tc rgb vermillion
  }
  plot for [k = 0 : categories - 1] data index k using 2:1:2:3:($1 - 0.3):($1 + 0.3) with boxxyerror lc rgb word(colours, k + 1) title category(k), \
       data index categories using 2:1:(narrow(variant) ? strcol(4) : strcol(3)) with labels left offset 0.6,0 notitle
  unset output
}
