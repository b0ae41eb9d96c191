package nats

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
)

var _ backend.Checker = (*Backend)(nil)

// maxStreams is the most streams that Check inspects. One answer of the server lists a few
// hundred.
const maxStreams = 2000

// Check implements [backend.Checker]. It inspects the account and the settings of streams, in a
// dozen requests at most.
func (b *Backend) Check(ctx context.Context) ([]backend.Finding, error) {
	return run(ctx, b, "check", "", harmless, func(ctx context.Context) ([]backend.Finding, error) {
		var account jetstream.AccountInfo
		if err := b.ask(ctx, "INFO", nil, &account); err != nil {
			return nil, err
		}
		found := versionOf(b.conn.ConnectedServerVersion())
		streams, total, err := b.streams(ctx)
		if errors.Is(err, backend.ErrDenied) {
			return append(found, unseen("the user may not list the streams ("+b.prefix+"STREAM.LIST): their settings are not checked")), nil
		}
		if err != nil {
			return nil, err
		}
		if len(streams) < total {
			found = append(found, unseen(fmt.Sprintf("%d of %d streams were not checked, because there are too many", total-len(streams), total)))
		}
		crowds := map[string]bool{}
		for i := range streams {
			found = append(found, b.checkStream(&streams[i])...)
			c := streams[i].Config
			kind := fmt.Sprintf("%s storage", strings.ToLower(c.Storage.String()))
			if s := usedOf(account, c); s >= nearlyFull && !crowds[kind] {
				crowds[kind] = true
				found = append(found, backend.Finding{
					Code: "nats-account", Severity: backend.SeverityWarning, Server: "nats, the account",
					Text:   fmt.Sprintf("the account uses %.0f %% of its %s: Publish fails when it is full", 100*s, kind),
					Remedy: "raise the limit of the account, let the groups catch up, or delete groups and topics that nobody uses",
				})
			}
		}
		return found, nil
	})
}

const nearlyFull = 0.9 // as a share of the account's storage

func unseen(text string) backend.Finding {
	return backend.Finding{
		Code: "nats-unseen", Severity: backend.SeverityNote, Text: text,
		Remedy: "look at them with nats stream report, as a user who may see them",
	}
}

// versionOf returns the findings about a server version. New refuses a version with an error
// among them.
func versionOf(version string) []backend.Finding {
	var v [3]int
	if n, _ := fmt.Sscanf(version, "%d.%d.%d", &v[0], &v[1], &v[2]); n < 2 {
		return nil
	}
	if slices.Compare(v[:2], oldestVersion[:]) < 0 {
		return []backend.Finding{{
			Code: "nats-version", Severity: backend.SeverityError,
			Text:   fmt.Sprintf("the server has version %s; version %d.%d or later is required", version, oldestVersion[0], oldestVersion[1]),
			Remedy: "update the server",
		}}
	}
	if v[0] == 2 && v[1] == 10 && v[2] >= 20 && v[2] <= 22 {
		return []backend.Finding{{
			Code: "nats-version", Severity: backend.SeverityWarning,
			Text:   fmt.Sprintf("the server has version %s, which can lose whole streams when its process crashes", version),
			Remedy: "update the server to 2.10.23 or later",
		}}
	}
	return nil
}

// streams returns up to maxStreams streams of this account, and how many there are.
func (b *Backend) streams(ctx context.Context) (all []jetstream.StreamInfo, total int, err error) {
	for {
		var page struct {
			Total   int                    `json:"total"`
			Streams []jetstream.StreamInfo `json:"streams"`
		}
		if err := b.ask(ctx, "STREAM.LIST", map[string]int{"offset": len(all)}, &page); err != nil {
			return nil, 0, err
		}
		all = append(all, page.Streams...)
		if len(page.Streams) == 0 || len(all) >= min(page.Total, maxStreams) {
			return all, max(page.Total, len(all)), nil
		}
	}
}

// checkStream returns the findings about a stream. A stream of another program or namespace has
// none.
func (b *Backend) checkStream(info *jetstream.StreamInfo) (found []backend.Finding) {
	topic, ours := b.topicOf(info.Config.Name)
	if b.options.Stream != "" {
		topic, ours = "", info.Config.Name == b.options.Stream
	}
	if !ours {
		return nil
	}
	loc := b.locate(topic)
	want := b.newStreamConfig(loc)
	// Programs choose these two, and a stream with more of them is as good.
	want.Replicas = max(want.Replicas, info.Config.Replicas)
	want.Duplicates = min(want.Duplicates, info.Config.Duplicates)
	if c := info.Cluster; c != nil && c.Name != "" && info.Config.Replicas == 1 {
		want.Replicas = max(want.Replicas, 3)
	}
	add := func(all differences, severity backend.Severity) {
		for _, d := range all {
			f := backend.Finding{
				Code: "nats-" + strings.ReplaceAll(d.setting, " ", "-"), Severity: severity,
				Server: "nats stream " + loc.stream, Topic: topic,
				Text:   "the stream's " + d.text,
				Remedy: "create the topic again: the server cannot change " + d.setting + " of an existing stream",
			}
			if flag := editable(d); flag != "" {
				f.Remedy = "change the stream"
				f.Command = []string{"nats", "stream", "edit", loc.stream, flag, "--force"}
			}
			found = append(found, f)
		}
	}
	refused, harmless := drift(loc, want, info.Config)
	add(refused, backend.SeverityError)
	add(harmless, backend.SeverityWarning)
	return found
}

// editable returns the flag of `nats stream edit` that removes a difference, or "" if there is
// none.
func editable(d difference) string {
	switch d.setting {
	case "max age":
		return "--max-age=0s"
	case "replicas":
		return "--replicas=" + d.want
	case "discard":
		return "--discard=new"
	case "max bytes":
		return "--max-bytes=" + d.want
	case "max messages":
		return "--max-msgs=" + d.want
	case "max messages per subject":
		return "--max-msgs-per-subject=-1"
	case "rollups":
		return "--no-allow-rollup"
	}
	return ""
}
