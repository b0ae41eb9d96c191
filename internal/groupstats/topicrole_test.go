package groupstats

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/internal/later"
	"github.com/seed41896749/eventbus/internal/partition"
)

func TestRoles(t *testing.T) {
	for _, row := range []struct {
		name   string
		role   role
		of     string
		number int
	}{
		{"orders", plain, "orders", 0},
		{"shop.orders", plain, "shop.orders", 0},
		{"orders.dlq", plain, "orders.dlq", 0},
		{partition.Topic("shop.orders", 12), isPartition, "shop.orders", 12},
		{partition.NumberTopic("shop.orders"), isInner, "shop.orders", 0},
		{partition.OwnersTopic("shop.orders"), isOwners, "shop.orders", 0},
		{partition.MembersTopic("shop.orders"), isInner, "shop.orders", 0},
		{later.Topic("orders"), isLog, "orders", 0},
		{later.Topic("orders") + ".token", isInner, "orders", 0},
		{"orders.partition-3.dlq", plain, "orders.partition-3.dlq", 0},
		{"orders.partition-007", plain, "orders.partition-007", 0},
		{"orders.partition-4096", plain, "orders.partition-4096", 0},
		{"orders.partition-", plain, "orders.partition-", 0},
		{"orders.partitions.others", plain, "orders.partitions.others", 0},
		{"partition-1", plain, "partition-1", 0},
		{"partitions.owners", plain, "partitions.owners", 0},
		{".later", plain, ".later", 0},
	} {
		r, of, number := roleOf(row.name)
		require.Equal(t, row.role, r, row.name)
		require.Equal(t, row.of, of, row.name)
		require.Equal(t, row.number, number, row.name)
	}
}

// Another program may have given a topic any name.
func FuzzRoleOf(f *testing.F) {
	for _, name := range []string{"", ".", ".partitions", "a.partitions.b.partitions.owners", "a.partition-1.partition-2", "a.partitionsx.partitions"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		r, of, n := roleOf(name)
		if r == plain {
			require.Equal(t, name, of)
		} else {
			require.NotEmpty(t, of)
			require.Less(t, len(of), len(name))
			require.Equal(t, name[:len(of)], of)
		}
		if r == isPartition {
			require.Equal(t, name, partition.Topic(of, n))
		}
	})
}
