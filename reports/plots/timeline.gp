# One step as boxes. Data: index k = kind k: lane, from, to.
do for [variant in "wide narrow png"] {
  reset
  W = width(variant); H = 96 + int(34 * bottom) + (narrow(variant) ? 40 : 0)
  eval terminal_of(variant, H)
  set output output_of(variant)
  eval common; set key width (narrow(variant) ? -2 : 0)
  eval lane_names
  eval side_names
  left = 12.0 + text_px(longest_name); right = W - 24.0
  set lmargin at screen left / W; set rmargin at screen right / W
  set xrange [0 : largest]
  set yrange [bottom : -0.5]
  unset grid
  set grid xtics lc rgb '#aaaaaa' lw 0.5 dt 3
  set border 1
  set ytics scale 0
  set xlabel 'time from the start of the step ('.unit.')'
  set key outside top center horizontal maxrows (narrow(variant) ? 3 : 1)
  plot for [k = 0 : kinds - 1] data index k using 2:1:2:3:($1 - 0.38):($1 + 0.38) with boxxyerror lc rgb word(colours, k + 1) title kind(k)
  unset output
}
