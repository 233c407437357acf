# Memory against speed of what was simulated. Data: index 0 = the front (memory, tokens/s, ascending); then one index per variant: memory, tokens/s.
entry_colour(k) = value(word('blue orange green vermillion purple sky yellow dim', (k - 1) % 8 + 1))
entry_shape(k) = int(word('7 5 9 13 11', (k - 1) % 5 + 1))
do for [variant in "wide narrow png"] {
  reset
  W = width(variant); lines = narrow(variant) ? entries : (entries + 2) / 3
  H = (narrow(variant) ? 380 : 440) + 17 * lines
  eval terminal_of(variant, H)
  set output output_of(variant)
  eval common
  set key outside below left Left reverse maxcols (narrow(variant) ? 1 : 3)
  set xlabel 'device memory ('.unit.')'; set ylabel 'tokens/s of all GPUs' offset 1,0
  set format y '%.0f'
  set yrange [0:*]; set xrange [0:*]
  if (capacity > 0) {
    set arrow 1 from capacity, graph 0 to capacity, graph 1 nohead lc rgb vermillion lw 1.5 dt 2
    set xrange [0 : capacity * 1.06]
    set label 1 'capacity' at capacity, graph 1.03 right textcolor rgb vermillion
    set tmargin 2
  }
  plot data index 0 using 1:2 with steps lc rgb dim lw 1 title 'nothing is faster with less', \
       for [k = 1 : entries] data index k using 1:2 with points pt entry_shape(k) ps 1.0 lc rgb entry_colour(k) title entry(k - 1)
  unset output
}
