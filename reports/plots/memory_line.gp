# Memory over a step. Data: index 0 = predicted, index 1 = measured: x, size; index 2 = the peak: x, size.
do for [variant in "wide narrow png"] {
  reset
  W = width(variant); H = 330
  eval terminal_of(variant, H)
  set output output_of(variant)
  eval common; set key width (narrow(variant) ? -2 : 0)
  set xrange [0 : last]
  set yrange [0 : (capacity > 0 && capacity < 1.6 * largest && capacity > largest) ? capacity * 1.28 : largest * 1.22]
  set xlabel x_name; set ylabel 'allocated ('.unit.')' offset 1,0
  set key outside top center horizontal
  if (capacity > 0 && capacity < 1.6 * largest) {
    set arrow 1 from graph 0, first capacity to graph 1, first capacity nohead lc rgb vermillion lw 2 dt 2
    set label 1 'capacity '.capacity_text at graph 0, first capacity left offset 1,0.7 tc rgb vermillion
  }
  eval peak_label
  set rmargin 3
  if (predicted && measured) {
    plot data index 0 using 1:2 with fillsteps lc rgb pale title 'predicted', \
         data index 1 using 1:2 with steps lc rgb dim lw 1.5 title 'measured', \
         data index 2 using 1:2 with points pt 7 ps 0.8 lc rgb vermillion notitle
  } else {
    plot data index (predicted ? 0 : 1) using 1:2 with fillsteps lc rgb pale title (predicted ? 'predicted' : 'measured'), \
         data index 2 using 1:2 with points pt 7 ps 0.8 lc rgb vermillion notitle
  }
  unset output
}
