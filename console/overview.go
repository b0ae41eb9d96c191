package console

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/seed41896749/eventbus/internal/groupstats"
	"github.com/seed41896749/eventbus/internal/later"
)

// maxGroups is the most groups of one overview page.
const maxGroups = 200

// An overview is the first page: all groups, the ones in trouble first.
type overview struct {
	Query     string
	Status    string
	Chips     []chip
	Groups    []*groupstats.Group
	Unread    []*groupstats.Topic // without a group
	Scheduled []string            // the topics with scheduled or recurring events
	Records   []string            // the topics with lifecycle records about their events
	Letters   []*groupstats.Letters
	Empty     []string // the dead-letter topics that certainly have no dead letters
	Found     int      // groups that match
	Next      string   // URL of the next groups; empty: these are the last
	Beyond    int      // groups without statistics
	Total     int
}

// A chip is a status and the number of its groups.
type chip struct {
	Status  groupstats.Status
	N       int
	URL     string
	Current bool
}

func (c *console) overview(w http.ResponseWriter, r *http.Request) {
	s := c.sampler.Look(r.Context())
	q := r.URL.Query()
	first, _ := strconv.Atoi(q.Get("first")) // another text means the first page
	o := newOverview(s, q.Get("q"), q.Get("status"), max(first, 0))
	c.render(w, r, http.StatusOK, "overview", &page{Title: "Overview", Live: true, Figures: s, Body: o})
}

func newOverview(s *groupstats.Snapshot, query, status string, first int) *overview {
	o := &overview{Query: query, Status: status, Beyond: s.Beyond}
	n := map[groupstats.Status]int{}
	matches := func(texts ...string) bool {
		return slices.ContainsFunc(texts, func(t string) bool { return strings.Contains(strings.ToLower(t), strings.ToLower(query)) })
	}
	for _, t := range s.Topics {
		if status == "" && matches(t.Name) && slices.Contains(t.Inner, later.Topic(t.Name)) {
			o.Scheduled = append(o.Scheduled, t.Name)
		}
		if of := recordsTopic(t.Name); of != "" && len(t.Groups) == 0 {
			if status == "" && matches(t.Name) {
				o.Records = append(o.Records, of)
			}
			continue
		}
		if isUnread(t) && status == "" && matches(t.Name) {
			o.Unread = append(o.Unread, t)
		}
		if l := t.Letters; l != nil && status == "" && matches(t.Name) {
			if l.N == 0 && !l.More && !l.Unknown {
				o.Empty = append(o.Empty, t.Name)
			} else {
				o.Letters = append(o.Letters, l)
			}
		}
	}
	for _, g := range s.Groups() {
		n[g.Status]++
		o.Total++
		if (status == "" || g.Status.String() == status) && matches(g.Topic, g.Name) {
			o.Groups = append(o.Groups, g)
		}
	}
	for _, st := range groupstats.Statuses {
		if n[st] > 0 || st.String() == status {
			o.Chips = append(o.Chips, chip{st, n[st], overviewURL(query, st.String(), 0), st.String() == status})
		}
	}
	slices.SortStableFunc(o.Letters, func(a, b *groupstats.Letters) int { return -cmp.Compare(a.N, b.N) })
	o.Found = len(o.Groups)
	o.Groups = o.Groups[min(first, o.Found):]
	if len(o.Groups) > maxGroups {
		o.Groups, o.Next = o.Groups[:maxGroups], overviewURL(query, status, first+maxGroups)
	}
	o.Scheduled = o.Scheduled[:min(len(o.Scheduled), maxGroups)]
	o.Records = o.Records[:min(len(o.Records), maxGroups)]
	o.Unread = o.Unread[:min(len(o.Unread), maxGroups)]
	o.Letters = o.Letters[:min(len(o.Letters), maxGroups)]
	o.Empty = o.Empty[:min(len(o.Empty), maxGroups)]
	return o
}

// isUnread reports whether t is a topic of events that no group reads.
func isUnread(t *groupstats.Topic) bool {
	return len(t.Groups) == 0 && t.Letters == nil && (t.Exists || len(t.Partitions) > 0)
}
