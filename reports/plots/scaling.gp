# Tokens per second of each GPU over the number of GPUs. Data: one index per entry: GPUs, tokens/s of one.
entry_colour(k) = value(word('blue orange green vermillion purple sky yellow dim', (k - 1) % 8 + 1))
entry_shape(k) = int(word('7 5 9 13 11', (k - 1) % 5 + 1))
do for [variant in "wide narrow png"] {
  reset
  W = width(variant); H = narrow(variant) ? 340 + 17 * ((entries + 1) / 2) : 420
  eval terminal_of(variant, H)
  set output output_of(variant)
  eval common
  if (narrow(variant)) { set key outside below left maxcols 2 } else { set key outside right top }
  set logscale x 2
  set xlabel 'GPUs'; set ylabel 'tokens/s of each GPU' offset 1,0
  set format '%.0f'
  set xrange [least / 1.15 : most * 1.15]; set yrange [0:*]
  plot for [k = 1 : entries] data index k - 1 using 1:2 with linespoints pt entry_shape(k) ps 0.9 lw 1.5 lc rgb entry_colour(k) title entry(k - 1)
  unset output
}
