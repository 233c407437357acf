# reports/plots/style.gp: what all plots share. A script is: its parameters, this file, its template.
#
# Colours: Okabe and Ito, "Color Universal Design" (2008): distinct for every kind of colour vision.
blue = '#0072B2'; sky = '#56B4E9'; pale = '#AAD9F4'; green = '#009E73'; yellow = '#F0E442'
orange = '#E69F00'; vermillion = '#D55E00'; purple = '#CC79A7'; grey = '#999999'; dim = '#666666'

# Sizes in pixels: `wide` for screens and print, `narrow` for phones, png at twice the pixels of wide.
width(variant) = variant eq 'narrow' ? 400 : 960
narrow(variant) = variant eq 'narrow'
output_of(variant) = stem.(variant eq 'narrow' ? '-narrow.svg' : variant eq 'png' ? '.png' : '.svg')
terminal_of(variant, h) = variant eq 'png' \
  ? sprintf("set terminal pngcairo noenhanced background 'white' size %d,%d font 'DejaVu Sans,9' fontscale 2 linewidth 2 pointscale 2", 2*width(variant), 2*h) \
  : sprintf("set terminal svg noenhanced fixed size %d,%d font 'sans-serif,%d' linewidth 1", width(variant), h, narrow(variant) ? 13 : 12)
# Text of n characters is about this many pixels wide (DejaVu Sans, the widest of the usual fonts).
text_px(n) = 7.6 * n
common = "set border 3 lc rgb '#888888'; set tics nomirror scale 0.5 textcolor rgb 'black'; set grid xtics ytics lc rgb '#aaaaaa' lw 0.5 dt 3; \
  set style fill solid 1.0 noborder; set key noenhanced Left reverse samplen 1.2 spacing 1.2 width -2"
colours = ''
if (exists('colour_names')) { do for [name in colour_names] { colours = colours.value(name).' ' } }
