module github.com/seed41896749/eventbus

go 1.26
