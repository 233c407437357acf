# Predicted against measured. Data: index 1 .. entries = steps: measured, predicted; then busy time per op, one index per kind.
# Eight colours, then the same with other shapes.
entry_colour(k) = value(word('blue orange green vermillion purple sky yellow dim', (k - 1) % 8 + 1))
entry_shape(k) = int(word('7 5 9 13 11', (k - 1) % 5 + 1))
do for [variant in "wide narrow png"] {
  reset
  W = width(variant); H = narrow(variant) ? 860 : 470
  eval terminal_of(variant, H)
  set output output_of(variant)
  eval common; set key width (narrow(variant) ? -2 : 0)
  set grid xtics ytics mxtics mytics lc rgb '#aaaaaa' lw 0.5 dt 3, lc rgb '#aaaaaa' lw 0.25 dt 3
  set key top left
  set xlabel 'measured ('.unit.')'; set ylabel 'predicted ('.unit.')' offset 1,0
  set format xy '%g'
  if (narrow(variant)) { set multiplot layout 2,1 } else { set multiplot layout 1,2 }
  do for [panel = 0 : (kinds > 0)] {
    lo = panel == 0 ? step_lo : op_lo; hi = panel == 0 ? step_hi : op_hi
    if (panel == 1 || hi > 20 * lo) {
      set logscale xy
      set xrange [lo / 1.5 : hi * 1.5]; set yrange [lo / 1.5 : hi * 1.5]
    } else {
      set xrange [lo * 0.8 : hi * 1.15]; set yrange [lo * 0.8 : hi * 1.15]
    }
    set size ratio 1
    set title panel == 0 ? 'step time' : 'busy time per op of a step'
    set samples 50
    if (panel == 0) {
      plot '+' using 1:(0.9 * $1):(1.1 * $1) with filledcurves fs transparent solid 0.25 lc rgb grey title 'within 10 %', \
           x with lines lc rgb dim lw 1 title 'equal', \
           for [k = 1 : entries] data index k using 1:2 with points pt entry_shape(k) ps 1.1 lc rgb entry_colour(k) title entry(k - 1)
    } else {
      plot '+' using 1:(0.9 * $1):(1.1 * $1) with filledcurves fs transparent solid 0.25 lc rgb grey notitle, \
           x with lines lc rgb dim lw 1 notitle, \
           for [k = 1 : kinds] data index entries + k using 1:2 with points pt 7 ps 0.8 lc rgb word(colours, k) title kind(k - 1)
    }
  }
  unset multiplot
  unset output
}
