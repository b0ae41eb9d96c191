package browser_test

import (
	"bytes"
	"image"
	"image/draw"
	"image/png"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/console"
)

// A shot is a picture of a page.
type shot struct {
	file   string
	url    func(w *tab) string
	scheme string
	phone  bool
	height int64
}

var shots = []shot{
	{file: "console-overview.png", url: at(""), scheme: "light", height: 720},
	{file: "console-dark.png", url: at(""), scheme: "dark", height: 720},
	{file: "console-phone.png", url: at(""), scheme: "light", phone: true, height: 844},
	{file: "console-group.png", url: at("group?topic=" + ordersTopic + "&name=mail"), scheme: "light", height: 620},
	{file: "console-letters.png", url: at("letters?topic=" + lettersTopic), scheme: "light", height: 720},
	{file: "console-event.png", url: firstEvent("letters?topic=" + lettersTopic + "&type=order.placed&header=region"), scheme: "light", height: 1340},
}

func at(url string) func(*tab) string { return func(*tab) string { return url } }

// firstEvent returns the URL of the first event that a page lists.
func firstEvent(url string) func(*tab) string {
	return func(w *tab) string {
		w.open(url)
		return eval[string](w, `document.querySelector("table.events tbody a").getAttribute("href")`)
	}
}

// TestShots draws the pictures of the documents: a shop on Redis that has run for some minutes.
func TestShots(t *testing.T) {
	folder := os.Getenv("EVENTBUS_CONSOLE_SHOTS")
	if folder == "" {
		t.Skip("EVENTBUS_CONSOLE_SHOTS names the folder for the pictures; make console-shots")
	}
	k := kinds[2]
	b, _ := k.open(t)
	s := newShop(t, b, 450*time.Millisecond)
	o := writable()
	o.Behind, o.Stuck, o.Logger = 20*time.Second, time.Minute, slog.New(slog.DiscardHandler)
	origin := serve(t, console.Handler(b, o)).origin()
	s.stock()
	w := newTab(t, origin)
	w.open("")
	for second := 0; second < 240; second += 2 {
		s.order(1 + 6*(second/40%2)) // now fewer, now more
		time.Sleep(2 * time.Second)
	}
	require.Equal(t, http.StatusOK, eval[int](w, `performance.getEntriesByType("navigation")[0].responseStatus`))
	for _, shot := range shots {
		w.take(filepath.Join(folder, shot.file), shot)
	}
	w.quiet()
}

func (w *tab) take(file string, s shot) {
	w.t.Helper()
	w.colours(s.scheme)
	size := emulation.SetDeviceMetricsOverrideParams{Width: 1200, Height: s.height, DeviceScaleFactor: 1}
	if s.phone {
		size = emulation.SetDeviceMetricsOverrideParams{Width: 390, Height: s.height, DeviceScaleFactor: 1, Mobile: true}
	}
	call(w, emulation.SetDeviceMetricsOverride, size)
	w.open(s.url(w))
	w.until("the figures are there", func() bool { return w.text("#state") == "" || strings.HasPrefix(w.text("#state"), "Updated 20") })
	raw, err := chromedp.Run(w.ctx, chromedp.CaptureScreenshot())
	require.NoError(w.t, err)
	picture, err := png.Decode(bytes.NewReader(raw))
	require.NoError(w.t, err)
	var out bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	require.NoError(w.t, encoder.Encode(&out, opaque(picture)))
	require.Less(w.t, out.Len(), 150<<10, file)
	require.NoError(w.t, os.WriteFile(file, out.Bytes(), 0o644)) //nolint:gosec // everybody may read it
}

// opaque returns a picture without transparency, which makes its file smaller.
func opaque(p image.Image) image.Image {
	flat := image.NewRGBA(p.Bounds())
	draw.Draw(flat, flat.Bounds(), p, p.Bounds().Min, draw.Src)
	return flat
}
